// out[n, k / 2] = two codes clamp(round(latent / scale), -8, 7) + 8 in a byte, low nibble first; 8 where the scale is 0.
// One thread per output word of four bytes, wherever in the rows they lie; half of a last byte may be zero.
#params numel: u32, k: u32, group: u32, scale_row: u32   // numel: bytes
#read latent: f32, scales: f32
#write out: u32
#include "quantize/quotient.wgsl"

fn nibble(row: u32, k: u32) -> u32 {
    if (k >= params.k) { return 0u; }
    let scale = load_scales(k / params.group * params.scale_row + row);
    if (scale == 0.0) { return 8u; }
    return u32(clamp(round(quotient(load_latent(row * params.k + k), scale)), -8.0, 7.0) + 8.0);
}

#main 64
    let word = group_number(group, groups) * 64u + lane;
    if (word * 4u >= params.numel) { return; }
    let row_bytes = (params.k + 1u) / 2u;
    var packed = 0u;
    for (var b = 0u; b < min(4u, params.numel - word * 4u); b++) {
        let row = (word * 4u + b) / row_bytes;
        let k = (word * 4u + b) % row_bytes * 2u;
        packed |= (nibble(row, k) | (nibble(row, k + 1u) << 4u)) << (b * 8u);
    }
    out[word] = packed;
}
