// out[o] = x[o's own place + sum over the index tensors of index(o) * stride].
// One thread per output word: one element, or four bytes ($PER_WORD), so that no two threads write one word.
// A negative index counts from the end. Indices given by the caller were checked; others are clamped.
struct Params {
    numel: u32,
    first: i32,   // dims before this one are 1
    dims: array<vec4<u32>, 2>,
    x_strides: array<vec4<u32>, 2>,
    picks: array<vec4<u32>, 2>,   // of up to four index tensors: the sizes of the dims they pick from, their strides
    strides: array<array<vec4<u32>, 2>, 4>,   // each index tensor read at o
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<u32>;
$INDICES
@group(0) @binding($OUT) var<storage, read_write> out: array<u32>;

fn picked(index: i32, n: u32) -> u32 {
    let size = i32(params.picks[0][n]);
    return u32(clamp(select(index, index + size, index < 0), 0, size - 1)) * params.picks[1][n];
}

fn source(element: u32) -> u32 {
    var rest = element;
    var at = 0u;
    var places = vec4<u32>();   // in the index tensors
    for (var d = 7; d >= params.first; d--) {
        let size = params.dims[d >> 2u][d & 3];
        let index = rest % size;
        rest = rest / size;
        at += index * params.x_strides[d >> 2u][d & 3];
        for (var n = 0; n < $COUNT; n++) {
            places[n] += index * params.strides[n][d >> 2u][d & 3];
        }
    }
    return at + $PICKED;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i * $PER_WORD >= params.numel) { return; }
    var word = 0u;
    for (var n = 0u; n < $PER_WORD; n++) {
        let at = source(i * $PER_WORD + n);
        if ($PER_WORD == 1u) {
            word = x[at];
        } else {
            word = insertBits(word, x[at >> 2u] >> ((at & 3u) * 8u), n * 8u, 8u);
        }
    }
    out[i] = word;
}
