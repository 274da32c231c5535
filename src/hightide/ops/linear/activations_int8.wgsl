// Activations in 8 bits, for products with 4-bit weights: of each block of 32, the largest is 127 steps from 0.
// One thread per block. In every eight codes the even ones come first: nibbles are taken out of their words that way.
// factors: a step, and the sum of the codes in steps.
#params blocks: u32
#read x: vec4<f32>
#write codes: u32, factors: vec2<f32>
#include "quantize/quotient.wgsl"

#main 64
    let block = group_number(group, groups) * 64u + lane;
    if (block >= params.blocks) { return; }
    var largest = vec4<f32>();
    for (var i = 0u; i < 8u; i++) { largest = max(largest, abs(load_x(block * 8u + i))); }
    let most = max(max(largest.x, largest.y), max(largest.z, largest.w));
    let step = quotient(most, 127.0);
    let per_step = select(0.0, quotient(127.0, most), most > 0.0);
    var sum = vec4<i32>();
    for (var i = 0u; i < 4u; i++) {
        let low = vec4<i32>(round(load_x(block * 8u + i * 2u) * per_step));
        let high = vec4<i32>(round(load_x(block * 8u + i * 2u + 1u) * per_step));
        sum += low + high;
        codes[block * 8u + i * 2u] = pack4xI8(vec4<i32>(low.x, low.z, high.x, high.z));
        codes[block * 8u + i * 2u + 1u] = pack4xI8(vec4<i32>(low.y, low.w, high.y, high.w));
    }
    store_factors(block, vec2<f32>(step, step * f32(sum.x + sum.y + sum.z + sum.w)));
}
