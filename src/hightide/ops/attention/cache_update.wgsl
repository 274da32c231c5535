// cache[b, position + s] = x[b, s]: new keys or values into their places, rows of `width` elements.
// One thread per element of x. VEC4: elements are vec4<f32>. PLACES: row (b, s) has a place of its own.
#const T = "vec4<f32>" if VEC4 else "f32"
#params count: u32, tokens: u32, context: u32, width: u32
#params position: live if not PLACES
#read x: $T
#read places: i32 if PLACES
#write cache: $T

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.count) { return; }
    let row = i / params.width;                       // b * tokens + s
    #if PLACES
    let token = u32(load_places(row));
    if (token >= params.context) { return; }
    #else
    let token = row % params.tokens + u32(live_int(params.position));
    #end
    store_cache((row / params.tokens * params.context + token) * params.width + i % params.width, load_x(i));
}
