// (scale, minimum) in halves, a word, with those of four rows together.
fn pair_at(plane: u32, row: u32, b: u32) -> Scale {
    let pair = unpack2x16float(weight[plane + (row / 4u * params.blocks + b) * 4u + row % 4u]);
    return Scale(pair.xx, pair.y);
}
