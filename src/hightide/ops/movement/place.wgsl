// x as a box inside out, `before` elements from its start along each dim (negative: x is cut there).
// Around the box stands `fill`, or with $KEEP what was there. One thread per output word: one element, or four
// bytes ($PER_WORD), so that no two threads write one word. A last word's spare bytes are anything.
struct Params {
    numel: u32,
    first: i32,   // dims before this one are 1
    fill: u32,
    out_dims: array<vec4<u32>, 2>,
    x_dims: array<vec4<i32>, 2>,
    before: array<vec4<i32>, 2>,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<u32>;

// Where an element of out lies in x; -1 if it is outside the box.
fn source(element: u32) -> i32 {
    var rest = element;
    var at = 0;
    var stride = 1;
    for (var d = 7; d >= params.first; d--) {
        let size = params.out_dims[d >> 2u][d & 3];
        let extent = params.x_dims[d >> 2u][d & 3];
        let index = i32(rest % size) - params.before[d >> 2u][d & 3];
        if (index < 0 || index >= extent) { return -1; }
        rest = rest / size;
        at += index * stride;
        stride *= extent;
    }
    return at;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i * $PER_WORD >= params.numel) { return; }
    var word = params.fill;
    if ($KEEP) { word = out[i]; }
    for (var n = 0u; n < $PER_WORD; n++) {
        let at = source(i * $PER_WORD + n);
        if (at < 0) { continue; }
        if ($PER_WORD == 1u) {
            word = x[at];
        } else {
            word = insertBits(word, x[at >> 2u] >> (u32(at & 3) * 8u), n * 8u, 8u);
        }
    }
    out[i] = word;
}
