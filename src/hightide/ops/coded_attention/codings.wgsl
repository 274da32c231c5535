// codings[row, head] = the scale and the zero point of the key of a head, then those of its value.
// One thread per row and head, of the rows that attention sees.
#params position: live, added: i32, heads: u32
#const HELD = "i8"
#const NAME = "k_zeros"
#include "int8/element.wgsl"
#const NAME = "v_zeros"
#include "int8/element.wgsl"
#read k_scales: f32, v_scales: f32
#write codings: vec4<f32>

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= u32(live_int(params.position) + params.added) * params.heads) { return; }
    store_codings(i, vec4<f32>(load_k_scales(i), f32(k_zeros_at(i)), load_v_scales(i), f32(v_zeros_at(i))));
}
