// out[o] = the squared distances of all x over the reduced dims from their mean, added up and divided by `divisor`.
// LANES threads per output, each taking every LANES-th element: their mean, then the distances from it; the first thread
// then joins the lanes' (mean, squares): one barrier. Elements are taken less the output's first one, so that a mean far
// from zero costs no digits. SCALE: 1 / sqrt(that + eps) instead.
#const C = "f32"
#include "reduce/elements.wgsl"
#params divisor: f32
#params eps: f32 if SCALE
#write out: f32

const LANES = ${LANES}u;
struct Part { mean: f32, squares: f32 }
var<workgroup> parts: array<Part, 64>;

// How many elements a lane takes.
fn taken(by: u32) -> f32 { return f32((params.count + LANES - 1u - by) / LANES); }

#main 64
    let output = group_number(group, groups) * (64u / LANES) + lane / LANES;
    let first = lane % LANES;
    let working = output < params.outputs && first < params.count;
    var part: Part;
    if (working) {
        let start = kept_at(output);
        let origin = element(start);
        for (var i = first; i < params.count; i += LANES) {
            part.mean += element(start + reduced_at(i)) - origin;
        }
        part.mean /= taken(first);
        for (var i = first; i < params.count; i += LANES) {
            let distance = element(start + reduced_at(i)) - origin - part.mean;
            part.squares += distance * distance;
        }
    }
    if (LANES > 1u) {
        parts[lane] = part;
        workgroupBarrier();
    }
    if (!working || first != 0u) { return; }
    let lanes = min(LANES, params.count);
    var mean = part.mean;
    var squares = part.squares;
    if (LANES > 1u) {
        mean = 0.0;
        for (var i = 0u; i < lanes; i++) { mean += parts[lane + i].mean * taken(i); }
        mean /= f32(params.count);
        squares = 0.0;
        for (var i = 0u; i < lanes; i++) {
            let distance = parts[lane + i].mean - mean;
            squares += parts[lane + i].squares + distance * distance * taken(i);
        }
    }
    #if SCALE
    store_out(output, 1.0 / sqrt(squares / params.divisor + params.eps));
    #else
    store_out(output, squares / params.divisor);
    #end
}
