// What the expressions of elementwise ops may call, for vectors V of the type C.
#if C == "f32"
// A compiler may take NaN for impossible, so bits are compared. min and max may drop it: torch keeps it.
fn is_nan(x: V) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
}
fn is_infinite(x: V) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) == vec4<u32>(0x7f800000u);
}
fn keep_nan(x: V, otherwise: V) -> V {
    return select(otherwise, x, is_nan(x));
}
fn not_a_number() -> f32 {
    return bitcast<f32>(0x7fc00000u + params.numel * 0u);   // no constant: WGSL refuses one
}
fn infinity() -> f32 {
    return bitcast<f32>(0x7f800000u + params.numel * 0u);
}

// sin(x + quarters * pi/2). The built-in one may be off by 2^-11 (SwiftShader's is by 2e-4). The angle is reduced by
// pi/2 in three parts whose products are exact up to 2^16 turns; past them the built-in one does as well.
fn sine(x: V, quarters: i32) -> V {
    let turns = round(x * 0.636619772);
    let r = ((x - turns * 1.5703125) - turns * 4.837512969970703125e-4) - turns * 7.54978995489188e-8;
    let z = r * r;
    let odd = r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
    let even = 1.0 - 0.5 * z + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
    let n = vec4<u32>(vec4<i32>(clamp(turns, V(-1e6), V(1e6))) + quarters);
    let value = select(odd, even, (n & vec4<u32>(1u)) == vec4<u32>(1u));
    let reduced = select(value, -value, (n & vec4<u32>(2u)) == vec4<u32>(2u));
    return select(reduced, sin(x + f32(quarters) * 1.5707963268), abs(turns) > V(65536.0));
}

// sqrt(a^2 + b^2) without squares that overflow; of an infinity and anything it is infinity, as in C.
fn hypotenuse(a: V, b: V) -> V {
    let high = max(abs(a), abs(b));
    let ratio = min(abs(a), abs(b)) / select(high, V(1.0), high == V());
    let length = keep_nan(a, keep_nan(b, high * sqrt(1.0 + ratio * ratio)));
    return select(length, V(infinity()), is_infinite(a) | is_infinite(b));
}

fn upper(x: V) -> V {
    return bitcast<V>(bitcast<vec4<u32>>(x) & vec4<u32>(0xfffff000u));
}
// floor(a / b) of the exact quotient: the rounded one may be a whole number off.
fn floor_div(a: V, b: V) -> V {
    let q = floor(a / b);
    // a - q * b, within 0..b if q is right: by halves of 12 bits, whose products are exact (fma may round twice).
    let qh = upper(q);
    let bh = upper(b);
    let rest = ((a - qh * bh) - qh * (b - bh) - (q - qh) * bh) - (q - qh) * (b - bh);
    let high = (rest != V()) & ((rest < V()) != (b < V()));
    let low = !high & (abs(rest) >= abs(b));
    return select(select(q, q + 1.0, low), q - 1.0, high);
}

// What is left of x after whole multiples of y, with the sign of x. Exact: by long division of the mantissas, eight bits
// at a time. (x % y of floats is off by a rounding of the quotient.)
fn fmod1(x: f32, y: f32) -> f32 {
    let above = bitcast<u32>(x) & 0x7fffffffu;
    let below = bitcast<u32>(y) & 0x7fffffffu;
    if (above >= 0x7f800000u || below > 0x7f800000u || below == 0u) { return not_a_number(); }
    if (above < below) { return x; }
    let exponent = max(below >> 23u, 1u);
    let divisor = mantissa(below);
    var rest = mantissa(above) % divisor;
    for (var bits = max(above >> 23u, 1u) - exponent; bits > 0u; bits -= min(bits, 8u)) {
        rest = (rest << min(bits, 8u)) % divisor;
    }
    // rest * 2^(exponent - 150), with its first bit moved to where a float has it
    let shift = min(countLeadingZeros(rest) - 8u, exponent - 1u);
    let shifted = rest << shift;
    let lifted = select(0u, (exponent - shift) << 23u, shifted >= 0x800000u);
    return bitcast<f32>((bitcast<u32>(x) & 0x80000000u) | lifted | (shifted & 0x7fffffu));
}
fn mantissa(bits: u32) -> u32 {
    return (bits & 0x7fffffu) | select(0u, 0x800000u, bits >= 0x800000u);
}

// x to the power y as torch has it: a negative base is fine with a whole exponent.
fn power1(x: f32, y: f32) -> f32 {
    if (y == 0.0) { return 1.0; }
    let odd = (y - 2.0 * floor(y * 0.5)) == 1.0;
    if (x == 0.0) { return select(0.0, select(1.0 / abs(x), 1.0 / x, odd), y < 0.0); }
    if (x > 0.0) { return pow(x, y); }
    if (y != floor(y)) { return not_a_number(); }
    return pow(-x, y) * select(1.0, -1.0, odd);
}

fn gelu_tanh(x: V) -> V {
    let inner = 0.7978845608 * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1.0 + tanh(clamp(inner, V(-15.0), V(15.0))));
}
// 1 - erf(z) of z >= 0, by Abramowitz and Stegun 7.1.26, within 1.5e-7.
fn erf_complement(z: V) -> V {
    let t = 1.0 / (1.0 + 0.3275911 * z);
    let tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    return tail * exp(-z * z);
}
// 0.5 x (1 + erf(x / sqrt 2))
fn gelu(x: V) -> V {
    return 0.5 * x * (1.0 + sign(x) * (1.0 - erf_complement(abs(x) * 0.7071067812)));
}
#elif C == "i32"
fn keep_nan(x: V, otherwise: V) -> V { return otherwise; }

// 0 where b is, as NumPy has it: torch raises an error there, which no kernel can.
fn trunc_div(a: V, b: V) -> V {
    return select(a / b, V(), b == V());
}
fn floor_div(a: V, b: V) -> V {
    let q = trunc_div(a, b);
    return select(q, q - 1, ((a ^ b) < V()) & (q * b != a) & (b != V()));
}

fn fmod1(x: i32, y: i32) -> i32 {
    return select(x - x / y * y, 0, y == 0);   // not x % y: drivers may take negative numbers for impossible
}

fn shift_left(x: V, places: V) -> V {
    return select(V(), x << (vec4<u32>(places) & vec4<u32>(31u)), (places >= V()) & (places < V(32)));
}
// As torch: a negative count shifts everything out, too.
fn shift_right(x: V, places: V) -> V {
    return x >> min(vec4<u32>(places), vec4<u32>(31u));
}

// By squaring, wrapping as integers do; a negative exponent is 1 / x^|y| cut to a whole number.
fn power1(x: i32, y: i32) -> i32 {
    if (y < 0) { return select(select(0, 1 - 2 * (y & 1), x == -1), 1, x == 1); }
    var result = 1;
    var square = x;
    for (var rest = y; rest > 0; rest >>= 1u) {
        if ((rest & 1) == 1) { result *= square; }
        square *= square;
    }
    return result;
}
#end
#if C != "bool"
fn power(x: V, y: V) -> V {
    return V(power1(x.x, y.x), power1(x.y, y.y), power1(x.z, y.z), power1(x.w, y.w));
}
fn fmod(x: V, y: V) -> V {
    return V(fmod1(x.x, y.x), fmod1(x.y, y.y), fmod1(x.z, y.z), fmod1(x.w, y.w));
}
// The same with the sign of y.
fn remainder(x: V, y: V) -> V {
    let rest = fmod(x, y);
    return select(rest, rest + y, (rest != V()) & ((rest < V()) != (y < V())));
}
#end
