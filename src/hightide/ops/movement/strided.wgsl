// dst[dst_start + sum(i * dst_stride)] = src[src_start + sum(i * src_stride)] over a box of up to 8 dims.
// One thread per element of the box. The source may start at a live integer (a slice at the position).
// Elements are whole 32-bit words; in and out have one type.
struct Params {
    numel: u32,
    dst_start: i32,
    src_start: i32,
    live_value: i32,   // src_start += live_int(live_value, live_slot) * live_stride
    live_slot: i32,
    live_stride: i32,
    dims: array<vec4<u32>, 2>,
    src_strides: array<vec4<u32>, 2>,
    dst_strides: array<vec4<u32>, 2>,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> src: array<u32>;
@group(0) @binding(3) var<storage, read_write> dst: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.numel) { return; }
    var rest = i;
    var from_at = params.src_start + live_int(params.live_value, params.live_slot) * params.live_stride;
    var to_at = params.dst_start;
    for (var d = 7; d >= 0; d--) {
        let size = params.dims[d >> 2u][d & 3];
        if (size > 1u) {
            let index = i32(rest % size);
            rest = rest / size;
            from_at += index * i32(params.src_strides[d >> 2u][d & 3]);
            to_at += index * i32(params.dst_strides[d >> 2u][d & 3]);
        }
    }
    dst[to_at] = src[from_at];
}
