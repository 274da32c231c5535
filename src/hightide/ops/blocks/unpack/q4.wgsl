// Exported 4-bit weights: quants less 8, in rows of row_words vec4s, with scales in a tensor of their own: a row of them
// per group of 32 << group_shift quants, counted in vec4s if ALIGNED.
#params row_words: u32, group_shift: u32, scale_row: u32
#const T = "vec4<f32>" if ALIGNED else "f32"
#read weight4: vec4<u32>, group_scales: $T
#include "blocks/nibbles.wgsl"
fn open_block(row: u32, b: u32) -> Block { return Block(load_weight4(row * params.row_words + b), vec4<u32>()); }
fn scale_at(row: u32, b: u32) -> Scale {
    let at = (b >> params.group_shift) * params.scale_row;
    #if ALIGNED
    let scale = load_group_scales(at + row / 4u)[row % 4u];
    #else
    let scale = load_group_scales(at + row);
    #end
    return Scale(vec2<f32>(scale), -8.0 * scale);
}
fn four_scales(rows: vec4<u32>, b: u32) -> Scales {
    let at = (b >> params.group_shift) * params.scale_row;
    #if ALIGNED
    let scale = load_group_scales(at + rows.x / 4u);
    #else
    let scale = vec4<f32>(load_group_scales(at + rows.x), load_group_scales(at + rows.y),
                          load_group_scales(at + rows.z), load_group_scales(at + rows.w));
    #end
    return Scales(array(scale, scale), -8.0 * scale);
}
