// out = $EXPR, element by element, with broadcasting.
// One thread per four consecutive output elements; buffers are padded to whole vec4s.
// Operands are loaded flat (same dims), strided (broadcast), or come as a number in the parameters.
alias N = $NUMBER;   // what numbers are in the parameters
struct Params {
    numel: u32,
    n0: N, n1: N, n2: N,   // operands that are numbers
    p: N, q: N,            // the op's scalars
    dims: array<vec4<u32>, 2>,
    strides0: array<vec4<u32>, 2>,
    strides1: array<vec4<u32>, 2>,
    strides2: array<vec4<u32>, 2>,
}
@group(0) @binding(0) var<uniform> params: Params;
$OPERANDS

// Where output element `element` lies in an operand of these strides.
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

fn bytes_of(word: u32) -> vec4<u32> {
    return (vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);
}
fn signed_bytes_of(word: u32) -> vec4<i32> {
    return vec4<i32>(bytes_of(word) << vec4<u32>(24u)) >> vec4<u32>(24u);
}

// A compiler may take NaN for impossible, so bits are compared, and min and max may drop it: torch keeps it.
fn is_nan(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
}
fn keep_nan(x: vec4<f32>, otherwise: vec4<f32>) -> vec4<f32> {
    return select(otherwise, x, is_nan(x));
}

// sin(x + quarters * pi/2). The built-in one may be off by 2^-11 (SwiftShader's is by 2e-4). The angle is reduced by
// pi/2 in three parts whose products are exact up to 2^16 turns; past them the built-in one does as well.
fn sine(x: vec4<f32>, quarters: i32) -> vec4<f32> {
    let turns = round(x * 0.636619772);
    let r = ((x - turns * 1.5703125) - turns * 4.837512969970703125e-4) - turns * 7.54978995489188e-8;
    let z = r * r;
    let odd = r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
    let even = 1.0 - 0.5 * z + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
    let n = vec4<u32>(vec4<i32>(clamp(turns, vec4<f32>(-1e6), vec4<f32>(1e6))) + quarters);
    let value = select(odd, even, (n & vec4<u32>(1u)) == vec4<u32>(1u));
    let reduced = select(value, -value, (n & vec4<u32>(2u)) == vec4<u32>(2u));
    return select(reduced, sin(x + f32(quarters) * 1.5707963268), abs(turns) > vec4<f32>(65536.0));
}

fn upper(x: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) & vec4<u32>(0xfffff000u));
}
// floor(a / b) of the exact quotient: the rounded one may be a whole number off.
fn floor_div(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    let q = floor(a / b);
    // a - q * b, within 0..b if q is right: by halves of 12 bits, whose products are exact (fma may round twice).
    let qh = upper(q);
    let bh = upper(b);
    let rest = ((a - qh * bh) - qh * (b - bh) - (q - qh) * bh) - (q - qh) * (b - bh);
    let high = (rest != vec4<f32>()) & ((rest < vec4<f32>()) != (b < vec4<f32>()));
    let low = !high & (abs(rest) >= abs(b));
    return select(select(q, q + 1.0, low), q - 1.0, high);
}
fn floor_div_int(a: vec4<i32>, b: vec4<i32>) -> vec4<i32> {
    let q = a / b;
    return select(q, q - 1, ((a ^ b) < vec4<i32>(0)) & (q * b != a));
}

// x to the power y as torch has it: a negative base is fine with a whole exponent.
fn power1(x: f32, y: f32) -> f32 {
    if (y == 0.0) { return 1.0; }
    let odd = (y - 2.0 * floor(y * 0.5)) == 1.0;
    if (x == 0.0) { return select(0.0, select(1.0 / abs(x), 1.0 / x, odd), y < 0.0); }
    if (x > 0.0) { return pow(x, y); }
    if (y != floor(y)) { return bitcast<f32>(0x7fc00000u + params.numel * 0u); }
    return pow(-x, y) * select(1.0, -1.0, odd);
}
fn power(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(power1(x.x, y.x), power1(x.y, y.y), power1(x.z, y.z), power1(x.w, y.w));
}

// Whole numbers: by squaring, wrapping as integers do; a negative exponent is 1 / x^|y| cut to a whole number.
fn power_int1(x: i32, y: i32) -> i32 {
    if (y < 0) { return select(select(0, 1 - 2 * (y & 1), x == -1), 1, x == 1); }
    var result = 1;
    var square = x;
    for (var rest = y; rest > 0; rest >>= 1u) {
        if ((rest & 1) == 1) { result *= square; }
        square *= square;
    }
    return result;
}
fn power_int(x: vec4<i32>, y: vec4<i32>) -> vec4<i32> {
    return vec4<i32>(power_int1(x.x, y.x), power_int1(x.y, y.y), power_int1(x.z, y.z), power_int1(x.w, y.w));
}

fn gelu_tanh(x: vec4<f32>) -> vec4<f32> {
    let inner = 0.7978845608 * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1.0 + tanh(clamp(inner, vec4<f32>(-15.0), vec4<f32>(15.0))));
}
// 0.5 x (1 + erf(x / sqrt 2)); erf by Abramowitz and Stegun 7.1.26, within 1.5e-7.
fn gelu(x: vec4<f32>) -> vec4<f32> {
    let z = abs(x) * 0.7071067812;
    let t = 1.0 / (1.0 + 0.3275911 * z);
    let tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    return 0.5 * x * (1.0 + sign(x) * (1.0 - tail * exp(-z * z)));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = group_number(group, groups) * 64u + lane;
    if (i * 4u >= params.numel) { return; }
    let p = vec4<$C>(vec4<N>(params.p));
    let q = vec4<$C>(vec4<N>(params.q));
$LOADS
    let result = $EXPR;
    $STORE
}
