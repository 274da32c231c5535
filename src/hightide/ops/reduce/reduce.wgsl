// out[o] = all x over the reduced dims, joined: added up, or the best of them (JOIN: sum, max or min).
// LANES threads per output, each taking every LANES-th element; the first then joins their parts: one barrier.
// A part's index counts over the reduced dims; of equals the first wins, and NaN is better than any number.
// KIND: the type that x is held in (f32, i32, u8 or i8); C: the type it is joined in; RESULT: value, mean or index.
#params outputs: u32
#params count: u32           // elements joined for one output, at least one
#params first_kept: i32, first_reduced: i32   // dims before these are 1
#params kept_dims: array<vec4<u32>, 2>, kept_strides: array<vec4<u32>, 2>
#params reduced_dims: array<vec4<u32>, 2>, reduced_strides: array<vec4<u32>, 2>
#const X = "u32" if KIND in ("u8", "i8") else KIND
#read x: $X
#write out: $OUT

const LANES = ${LANES}u;
struct Part { value: $C, index: u32 }
var<workgroup> parts: array<Part, 64>;

fn element(at: u32) -> $C {
    #if KIND == "u8"
    return $C((x[at >> 2u] >> ((at & 3u) * 8u)) & 255u);
    #elif KIND == "i8"
    return $C(extractBits(bitcast<i32>(x[at >> 2u]), (at & 3u) * 8u, 8u));
    #else
    return $C(load_x(at));
    #end
}

#if JOIN == "sum"
fn join(a: Part, b: Part) -> Part { return Part(a.value + b.value, 0u); }
#else
#const OVER = ">" if JOIN == "max" else "<"
fn is_nan(v: $C) -> bool {
    #if C == "f32"
    return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u;
    #else
    return false;
    #end
}
fn better(a: Part, b: Part) -> bool {
    if (a.value == b.value || (is_nan(a.value) && is_nan(b.value))) { return a.index < b.index; }
    return a.value $OVER b.value || is_nan(a.value);
}
fn join(a: Part, b: Part) -> Part {
    if (better(b, a)) { return b; }
    return a;
}
#end

fn kept_at(output: u32) -> u32 {
    var rest = output;
    var at = 0u;
    for (var d = 7; d >= params.first_kept; d--) {
        let size = params.kept_dims[d >> 2u][d & 3];
        at += rest % size * params.kept_strides[d >> 2u][d & 3];
        rest = rest / size;
    }
    return at;
}
fn reduced_at(index: u32) -> u32 {
    var rest = index;
    var at = 0u;
    for (var d = 7; d > params.first_reduced; d--) {
        let size = params.reduced_dims[d >> 2u][d & 3];
        at += rest % size * params.reduced_strides[d >> 2u][d & 3];
        rest = rest / size;
    }
    let d = params.first_reduced;
    return at + rest * params.reduced_strides[d >> 2u][d & 3];
}

#main 64
    let output = group_number(group, groups) * (64u / LANES) + lane / LANES;
    let first = lane % LANES;
    let working = output < params.outputs && first < params.count;
    var part: Part;
    if (working) {
        let start = kept_at(output);
        part = Part(element(start + reduced_at(first)), first);
        for (var i = first + LANES; i < params.count; i += LANES) {
            part = join(part, Part(element(start + reduced_at(i)), i));
        }
    }
    if (LANES > 1u) {
        parts[lane] = part;
        workgroupBarrier();
    }
    if (!working || first != 0u) { return; }
    for (var i = 1u; i < min(LANES, params.count); i++) {
        part = join(part, parts[lane + i]);
    }
    #if RESULT == "mean"
    store_out(output, $OUT(part.value / f32(params.count)));
    #else
    store_out(output, $OUT(part.$RESULT));
    #end
}
