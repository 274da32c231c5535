// How many lanes a subgroup has: the first lane of one workgroup writes it.
#write size: u32

@compute @workgroup_size(64)
fn main(@builtin(subgroup_size) lanes: u32, @builtin(local_invocation_index) lane: u32) {
    if (lane == 0u) { size[0] = lanes; }
}
