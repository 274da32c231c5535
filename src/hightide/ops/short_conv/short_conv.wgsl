// out[s] = c[s] * (the sum of weight[n] * cache[0, p - (TAPS - 1 - n)] over the TAPS rows up to its own position p).
// A row s of `mixed` is b, c and x, of `width` elements each; b * x is in the cache already.
// One thread per element of out, tile after tile. VEC4: elements are vec4<f32>. PAGED: see tile_at.wgsl.
#const T = "vec4<f32>" if VEC4 else "f32"
#params rows: u32, tokens: u32, width: u32   // rows of all tiles, and of one, at most
#read mixed: $T, weight: $T, cache: $T
#write out: $T
#include "attention/tile_at.wgsl"

#main 64
    let i = group_number(group, groups) * 64u + lane;
    let width = max(params.width, 1u);
    let n = i / width;
    let column = i % width;
    if (n >= params.rows) { return; }
    let tile = tile_at(n / params.tokens);
    let s = n % params.tokens;
    let p = tile.position + s;
    if (s >= tile.tokens || p >= tile.keys) { return; }
    var sum = $T();
    for (var back = 0u; back < min(${TAPS}u, p + 1u); back++) {
        sum += load_weight((${TAPS - 1}u - back) * width + column) * load_cache(key_row(tile, p - back) * width + column);
    }
    let row = tile.first + s;
    store_out(row * width + column, load_mixed((row * 3u + 1u) * width + column) * sum);
}
