// out[i] = tokens[i], or what was chosen for it in the step before: -1 - n stands for chosen[n]. One thread per token.
#params count: u32
#read tokens: i32, chosen: i32
#write out: i32

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.count) { return; }
    let token = load_tokens(i);
    store_out(i, select(token, load_chosen(u32(max(-1 - token, 0))), token < 0));
}
