// cache[b, position + s] = x[b, s]: new keys or values into their places, rows of `width` elements.
// One thread per element of x. VEC4: elements are vec4<f32>.
#const T = "vec4<f32>" if VEC4 else "f32"
#params count: u32, tokens: u32, context: u32, width: u32, position: live
#read x: $T
#write cache: $T

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.count) { return; }
    let row = i / params.width;                       // b * tokens + s
    let token = row % params.tokens + u32(live_int(params.position));
    store_cache((row / params.tokens * params.context + token) * params.width + i % params.width, load_x(i));
}
