// k_cache[0, position + s] = k[0, s], and the same of v: new keys and values into their places.
// One thread per element of k, then of v. VEC4: elements are vec4<f32>.
#const T = "vec4<f32>" if VEC4 else "f32"
#params keys: u32, values: u32, key_width: u32, value_width: u32, position: live
#read k: $T, v: $T
#write k_cache: $T, v_cache: $T

#main 64
    let i = group_number(group, groups) * 64u + lane;
    let position = u32(live_int(params.position));
    if (i < params.keys) {
        store_k_cache(position * params.key_width + i, load_k(i));
    } else if (i < params.keys + params.values) {
        store_v_cache(position * params.value_width + i - params.keys, load_v(i - params.keys));
    }
}
