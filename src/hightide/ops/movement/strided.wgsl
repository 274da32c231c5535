// out[dst_start + sum(i * dst_stride)] = x[src_start + sum(i * src_stride)] over a box of up to 8 dims.
// One thread per element of the box. The source may start at a live integer (a slice at the position).
// BYTES: bytes packed four to a word, into a contiguous out. One thread per word; a last word's spare bytes are zero.
#params numel: u32, dst_start: i32, src_start: i32
#params live_start: live, live_stride: i32   // the source starts at src_start + live_start * live_stride
#params dims: array<vec4<u32>, 2>, src_strides: array<vec4<u32>, 2>, dst_strides: array<vec4<u32>, 2>

// Where an element of the box lies: in x, in out.
fn places(element: u32) -> vec2<i32> {
    var rest = element;
    var at = vec2<i32>(params.src_start + live_int(params.live_start) * params.live_stride, params.dst_start);
    for (var d = 7; d >= 0; d--) {
        let size = params.dims[d >> 2u][d & 3];
        if (size > 1u) {
            let strides = vec2<u32>(params.src_strides[d >> 2u][d & 3], params.dst_strides[d >> 2u][d & 3]);
            at += i32(rest % size) * vec2<i32>(strides);
            rest = rest / size;
        }
    }
    return at;
}

#if BYTES
fn source(element: u32) -> u32 {
    return u32(places(element).x);
}
#include "movement/taken.wgsl"
#else
#read x: word
#write out: word
#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.numel) { return; }
    let at = places(i);
    store_out(u32(at.y), load_x(u32(at.x)));
}
#end
