// (scale, minimum) in halves, a word, with those of four rows together in the plane PAIRS.
#params $PAIRS: u32
fn scale_at(row: u32, b: u32) -> Scale {
    let pair = unpack2x16float(weight[params.$PAIRS + (row / 4u * params.blocks + b) * 4u + row % 4u]);
    return Scale(pair.xx, pair.y);
}
#if ALIGNED
fn four_scales(rows: vec4<u32>, b: u32) -> Scales {
    let words = load_weight4(params.$PAIRS / 4u + rows.x / 4u * params.blocks + b);
    #for r in 4
    let p$r = unpack2x16float(words[$r]);
    #end
    let scale = vec4<f32>(p0.x, p1.x, p2.x, p3.x);
    return Scales(array(scale, scale), vec4<f32>(p0.y, p1.y, p2.y, p3.y));
}
#else
#include "blocks/four_scales.wgsl"
#end
