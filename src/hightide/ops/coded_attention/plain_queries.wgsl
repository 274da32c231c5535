// out[i] = (codes[i] - zero) * scale, of its row of `width` elements: what 8-bit codes stand for.
// One thread per element.
#params numel: u32, width: u32
#const HELD = "i8"
#const NAME = "codes"
#include "int8/element.wgsl"
#const NAME = "zeros"
#include "int8/element.wgsl"
#read scales: f32
#write out: f32

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.numel) { return; }
    let row = i / params.width;
    store_out(i, f32(codes_at(i) - zeros_at(row)) * load_scales(row));
}
