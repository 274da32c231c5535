// out = a * sigmoid(b), where x has a and b one after the other along a dim: rows of `half` elements of a, then of b.
// One thread per element of out.
#params numel: u32, half: u32
#read x: f32
#write out: f32

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.numel) { return; }
    let at = i + i / params.half * params.half;
    store_out(i, load_x(at) / (1.0 + exp(-load_x(at + params.half))));
}
