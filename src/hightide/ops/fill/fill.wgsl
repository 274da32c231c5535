// out[i] = start + i * step, as words of f32 or i32. One thread per element.
struct Params { numel: u32, start: $T, step: $T }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read_write> out: array<$T>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i < params.numel) { out[i] = params.start + $T(i) * params.step; }
}
