// Q4_K and Q5_K: 256 quants; per 32 of them a scale and a minimum of 6 bits, times d and dmin (f16): 16 bytes per 256
// in the plane HEADS. A head is (d, dmin), then 12 bytes: the low 6 bits of the first four, and what is left of the
// others spread over them.
#params $HEADS: u32
#include "blocks/four_scales.wgsl"
fn scale_at(row: u32, b: u32) -> Scale {
    let at = row * params.blocks + b;
    let pair = k_scale(load_weight4(params.$HEADS / 4u + at / 8u), at % 8u);
    return Scale(pair.xx, pair.y);
}
fn k_scale(head: vec4<u32>, sub: u32) -> vec2<f32> {
    let d = unpack2x16float(head.x);
    let shift = sub % 4u * 8u;
    let a = head.y >> shift;
    let b = head.z >> shift;
    let c = head.w >> shift;
    if (sub < 4u) { return d * vec2<f32>(f32(a & 63u), -f32(b & 63u)); }
    let scale = (c & 15u) | (((a >> 6u) & 3u) << 4u);
    let least = ((c >> 4u) & 15u) | (((b >> 6u) & 3u) << 4u);
    return d * vec2<f32>(f32(scale), -f32(least));
}
