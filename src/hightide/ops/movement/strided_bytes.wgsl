// The box of strided.wgsl for bytes packed in words: out[i] = src[start + sum(index * stride)], out contiguous.
// One thread per output word of four bytes; the last word's spare bytes are zero.
struct Params {
    numel: u32,
    src_start: i32,
    live_value: i32,   // src_start += live_int(live_value, live_slot) * live_stride
    live_slot: i32,
    live_stride: i32,
    dims: array<vec4<u32>, 2>,
    src_strides: array<vec4<u32>, 2>,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> src: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<u32>;

fn byte_at(element: u32) -> u32 {
    var rest = element;
    var at = params.src_start + live_int(params.live_value, params.live_slot) * params.live_stride;
    for (var d = 7; d >= 0; d--) {
        let size = params.dims[d >> 2u][d & 3];
        if (size > 1u) {
            at += i32(rest % size) * i32(params.src_strides[d >> 2u][d & 3]);
            rest = rest / size;
        }
    }
    return (src[at >> 2u] >> (u32(at & 3) * 8u)) & 255u;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let word = group_number(group, groups) * 64u + lane;
    if (word * 4u >= params.numel) { return; }
    var packed = 0u;
    for (var b = 0u; b < min(4u, params.numel - word * 4u); b++) {
        packed |= byte_at(word * 4u + b) << (b * 8u);
    }
    out[word] = packed;
}
