// Where a head of tensor X begins.
fn ${X}_start(head: u32) -> u32 {
    #if BATCHED
    return head / params.heads_per_batch * params.${X}_batch + head % params.heads_per_batch * params.${X}_head;
    #else
    return head * params.${X}_head;
    #end
}
