// out = $EXPR, element by element, with broadcasting.
// One thread per four consecutive output elements; buffers are padded to whole vec4s.
// EXPR is over INPUTS inputs, computed in C (f32, i32 or bool). NAMEn is what EXPR calls one; KINDn says what it is: the
// type that a tensor is held in (f32, i32, u8, i8 or bool), "number" in the parameters, or "a" for the same tensor as a.
// SPREADn says how it is broadcast: "flat" if its dims are those of the output, "fours" if a thread's four elements lie
// together, "once" if they are one element, "each" if they may lie anywhere. BROADCAST: not all are flat.
// OUT: the type of the result.
#const N = "i32" if C == "bool" else C   // of a number in the parameters
#params numel: u32
#params dims: array<vec4<u32>, 2> if BROADCAST
#const WORDS = OUT in ("u8", "i8", "bool")   // bytes are packed four to a word
#const STORED = "u32" if WORDS else "vec4<" + OUT + ">"
#write out: $STORED
alias V = vec4<$C>;

#include "elementwise/functions.wgsl"
#if "precise_" in EXPR
#include "elementwise/precise.wgsl"
#end

fn bytes_of(word: u32) -> vec4<u32> {
    return (vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);
}
fn signed_bytes_of(word: u32) -> vec4<i32> {
    return vec4<i32>(bytes_of(word) << vec4<u32>(24u)) >> vec4<u32>(24u);
}

#if BROADCAST
// Where output element `element` lies in an input of these strides.
fn at(element: u32, strides: array<vec4<u32>, 2>) -> u32 {
    var rest = min(element, params.numel - 1u);
    var place = 0u;
    for (var d = 7; d >= 0; d--) {
        let size = params.dims[d >> 2u][d & 3];
        if (size > 1u) {
            place += rest % size * strides[d >> 2u][d & 3];
            rest = rest / size;
        }
    }
    return place;
}
fn places(i: u32, strides: array<vec4<u32>, 2>) -> vec4<u32> {
    let first = i * 4u;
    return vec4<u32>(at(first, strides), at(first + 1u, strides), at(first + 2u, strides), at(first + 3u, strides));
}
#end

// Each input by a function that gives its four elements.
#for n in INPUTS
#const X = NAME0 if n == 0 else NAME1 if n == 1 else NAME2 if n == 2 else NAME3
#const KIND = KIND0 if n == 0 else KIND1 if n == 1 else KIND2 if n == 2 else KIND3
#const SPREAD = SPREAD0 if n == 0 else SPREAD1 if n == 1 else SPREAD2 if n == 2 else SPREAD3
#const T = "bool" if X == "condition" else C
#const BYTES = "signed_bytes_of" if KIND == "i8" else "bytes_of" if KIND in ("u8", "bool") else ""
fn ${X}_of(i: u32) -> vec4<$T> {
    #if KIND == "number"
    #params $X: $N
    return vec4<$T>(vec4<$N>(params.$X));
    #elif KIND == "a"
    return a_of(i);
    #elif SPREAD == "flat" and BYTES
    #read $X: u32
    return vec4<$T>($BYTES($X[i]));
    #elif SPREAD == "flat"
    #read $X: vec4<$KIND>
    return vec4<$T>(load_$X(i));
    #elif SPREAD == "fours"
    #params ${X}_strides: array<vec4<u32>, 2>
    #read $X: vec4<$KIND>
    return vec4<$T>(load_$X(at(i * 4u, params.${X}_strides) / 4u));
    #elif SPREAD == "once"
    #params ${X}_strides: array<vec4<u32>, 2>
    #read $X: $KIND
    return vec4<$T>(vec4<$KIND>(load_$X(at(i * 4u, params.${X}_strides))));
    #else
    #params ${X}_strides: array<vec4<u32>, 2>
    let p = places(i, params.${X}_strides);
    #if BYTES
    #read $X: u32
    return vec4<$T>(vec4($BYTES($X[p.x / 4u])[p.x % 4u], $BYTES($X[p.y / 4u])[p.y % 4u],
                         $BYTES($X[p.z / 4u])[p.z % 4u], $BYTES($X[p.w / 4u])[p.w % 4u]));
    #else
    #read $X: $KIND
    return vec4<$T>(vec4(load_$X(p.x), load_$X(p.y), load_$X(p.z), load_$X(p.w)));
    #end
    #end
}
#end

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i * 4u >= params.numel) { return; }
    #for n in INPUTS
    #const X = NAME0 if n == 0 else NAME1 if n == 1 else NAME2 if n == 2 else NAME3
    let $X = ${X}_of(i);
    #end
    let result = $EXPR;
    #if OUT == "bool"
    out[i] = dot(vec4<u32>(vec4<bool>(result)), vec4<u32>(1u, 256u, 65536u, 16777216u));
    #elif WORDS
    out[i] = dot(vec4<u32>(vec4<i32>(result)) & vec4<u32>(255u), vec4<u32>(1u, 256u, 65536u, 16777216u));
    #else
    store_out(i, vec4<$OUT>(result));
    #end
}
