// codings[row, head] = the scale and the zero point of the key of a head, then those of its value.
// One thread per row and head: of the rows that attention sees, or with PLACES of new rows, each with a place of its own.
#params heads: u32
#params position: live, added: i32 if not PLACES
#params tokens: u32, capacity: u32 if PLACES   // capacity: rows of the codings
#const HELD = "i8"
#const NAME = "k_zeros"
#include "int8/element.wgsl"
#const NAME = "v_zeros"
#include "int8/element.wgsl"
#read k_scales: f32, v_scales: f32
#read places: i32 if PLACES
#write codings: vec4<f32>

#main 64
    let i = group_number(group, groups) * 64u + lane;
    #if PLACES
    if (i >= params.tokens * params.heads) { return; }
    let row = u32(load_places(i / params.heads));
    if (row >= params.capacity) { return; }
    let at = row * params.heads + i % params.heads;
    #else
    if (i >= u32(live_int(params.position) + params.added) * params.heads) { return; }
    let at = i;
    #end
    store_codings(at, vec4<f32>(load_k_scales(i), f32(k_zeros_at(i)), load_v_scales(i), f32(v_zeros_at(i))));
}
