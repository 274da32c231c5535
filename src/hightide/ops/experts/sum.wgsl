// out[token] = the sum over its USED experts of share * y: y has a row for each. One thread per element of `out`.
// VEC4: the width is a multiple of 4, and is counted in vec4s.
#const T = "vec4<f32>" if VEC4 else "f32"
#params tokens: u32, width: u32, used: u32
#read y: $T, shares: f32
#write out: $T

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.tokens * params.width) { return; }
    let token = i / params.width;
    var sum = $T();
    for (var n = 0u; n < params.used; n++) {
        let row = token * params.used + n;
        sum += load_shares(row) * load_y(row * params.width + i % params.width);
    }
    store_out(i, sum);
}
