// out[i] = ((i % columns + offset) * stride, (i / columns + offset) * stride). One thread per point.
#params points: u32, columns: u32, stride: f32, offset: f32
#write out: vec2<f32>

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.points) { return; }
    let point = vec2<f32>(vec2<u32>(i % params.columns, i / params.columns));
    store_out(i, (point + params.offset) * params.stride);
}
