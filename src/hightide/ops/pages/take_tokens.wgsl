// out[i] = tokens[i], or what was chosen for it in the step before: -1 - n stands for chosen[n]. One thread per token.
#params count: u32, chosen_count: u32
#read tokens: i32, chosen: i32
#write out: i32

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.count) { return; }
    var token = load_tokens(i);
    if (token < 0 && params.chosen_count > 0u) { token = load_chosen(min(u32(-1 - token), params.chosen_count - 1u)); }
    store_out(i, token);
}
