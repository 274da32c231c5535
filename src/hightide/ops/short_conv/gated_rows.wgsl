// cache[0, position + s] = b[s] * x[s], where a row s of `mixed` is b, c and x, of `width` elements each.
// One thread per element of b. VEC4: elements are vec4<f32>. PAGED: row s has a place of its own.
#const T = "vec4<f32>" if VEC4 else "f32"
#params count: u32, width: u32
#params position: live if not PAGED
#params capacity: u32 if PAGED   // rows of the cache
#read mixed: $T
#read places: i32 if PAGED
#write cache: $T

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.count) { return; }
    let row = i / params.width;
    let column = i % params.width;
    #if PAGED
    let place = u32(load_places(row));
    if (place >= params.capacity) { return; }
    #else
    let place = u32(live_int(params.position)) + row;
    #end
    let at = row * 3u * params.width + column;
    store_cache(place * params.width + column, load_mixed(at) * load_mixed(at + 2u * params.width));
}
