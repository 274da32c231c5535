// Part of every kernel: the workgroup's number in a grid that may be folded over two dimensions.
fn group_number(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.x + group.y * groups.x;
}
