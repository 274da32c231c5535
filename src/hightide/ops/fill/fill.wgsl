// out[i] = start + i * step. One thread per word: an element, or four equal bytes with a step of 0.
// T is the type of a word: f32, i32, or u32 for bytes.
#params words: u32, start: $T, step: $T
#write out: $T

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i < params.words) { store_out(i, params.start + $T(i) * params.step); }
}
