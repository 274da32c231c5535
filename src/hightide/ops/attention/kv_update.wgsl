// New keys and values into their places: k_cache[0, position + s] = k[0, s], and the same of v.
// One thread per element of k, then of v. VEC4: elements are vec4<f32>. PAGED: row s has a place of its own.
// CODES: elements are bytes, counted in words of four.
#const T = "u32" if CODES else "vec4<f32>" if VEC4 else "f32"
#params keys: u32, values: u32, key_width: u32, value_width: u32
#params position: live if not PAGED
#params capacity: u32 if PAGED   // rows of the caches
#read k: $T, v: $T
#read places: i32 if PAGED
#write k_cache: $T, v_cache: $T

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.keys + params.values) { return; }
    let is_key = i < params.keys;
    let at = select(i - params.keys, i, is_key);
    let width = select(params.value_width, params.key_width, is_key);
    #if PAGED
    let place = u32(load_places(at / width));
    if (place >= params.capacity) { return; }
    #else
    let place = u32(live_int(params.position)) + at / width;
    #end
    if (is_key) {
        store_k_cache(place * width + at % width, load_k(at));
    } else {
        store_v_cache(place * width + at % width, load_v(at));
    }
}
