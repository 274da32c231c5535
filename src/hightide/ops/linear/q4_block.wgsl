// 4-bit weights with a scale per group in a tensor of its own: quants less 8; groups are 32 << group_shift long.
@group(0) @binding(2) var<storage, read> weight4: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> group_scales: array<$SCALE>;
const MINIMUM = true;

fn open_block(row: u32, b: u32) -> Block { return Block(weight4[row * params.row_words + b], vec4<u32>()); }
fn scale_at(row: u32, b: u32) -> Scale {
    let at = (b >> params.group_shift) * params.scale_row;
    let scale = $ONE;
    return Scale(vec2<f32>(scale), -8.0 * scale);
}
fn four_scales(rows: vec4<u32>, b: u32) -> Scales {
    let at = (b >> params.group_shift) * params.scale_row;
    let scale = $FOUR;
    return Scales(array(scale, scale), -8.0 * scale);
}
fn four(block: Block, row: u32, b: u32, h: u32) -> vec4<f32> { return nibbles(block.q, h); }
fn quant_unit(h: u32) -> vec4<f32> { return nibble_unit(h); }
