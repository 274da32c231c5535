// Functions that small numbers or small results must not be lost in, for vectors V of f32.
// WGSL lets its own be off by 4096 units in the last place (atan2, asin), or by 2^-21 near a result of 0 (log), and defines
// sinh by a difference of exp. These keep a relative error of 1e-6. The polynomials are those of Cephes (netlib.org/cephes).
const HALF_PI = 1.5707963268;
const LOG_2 = 0.6931471806;

fn with_sign_of(x: V, size: V) -> V {
    return bitcast<V>((bitcast<vec4<u32>>(x) & vec4<u32>(0x80000000u)) | (bitcast<vec4<u32>>(size) & vec4<u32>(0x7fffffffu)));
}

// exp(x) - 1
fn precise_expm1(x: V) -> V {
    let series = ((((1.9875691500e-4 * x + 1.3981999507e-3) * x + 8.3334519073e-3) * x + 4.1665795894e-2) * x
        + 1.6666665459e-1) * x + 5.0000001201e-1;
    return keep_nan(x, select(exp(x) - 1.0, x + x * x * series, abs(x) < V(0.3466)));
}
// log(1 + x)
fn precise_log1p(x: V) -> V {
    let series = (((((((7.0376836292e-2 * x - 1.1514610310e-1) * x + 1.1676998740e-1) * x - 1.2420140846e-1) * x
        + 1.4249322787e-1) * x - 1.6668057665e-1) * x + 2.0000714765e-1) * x - 2.4999993993e-1) * x + 3.3333331174e-1;
    let small = (x > V(-0.2929)) & (x < V(0.4142));
    let value = select(log(1.0 + x), x - 0.5 * x * x + x * x * x * series, small);
    let outside = select(V(not_a_number()), V(-infinity()), x == V(-1.0));
    return keep_nan(x, select(outside, value, x > V(-1.0)));
}

fn precise_log(x: V) -> V {
    return select(log(x), precise_log1p(x - 1.0), abs(x - 1.0) < V(0.29));
}

fn precise_logit(x: V) -> V {
    return precise_log(x / (1.0 - x));
}

fn precise_tanh(x: V) -> V {
    let e = precise_expm1(2.0 * min(abs(x), V(15.0)));   // beyond, the result is 1
    return keep_nan(x, with_sign_of(x, e / (e + 2.0)));
}
// Past 20 the other exp is nothing beside the first, which is taken in two parts: it overflows before its half does.
fn precise_sinh(x: V) -> V {
    let e = precise_expm1(abs(x));
    let part = exp(0.5 * abs(x));
    return keep_nan(x, with_sign_of(x, select(0.5 * (e + e / (e + 1.0)), 0.5 * part * part, abs(x) > V(20.0))));
}
fn precise_cosh(x: V) -> V {
    let part = exp(0.5 * abs(x));
    return keep_nan(x, 0.5 * part * part + 0.5 / (part * part));
}

// The squares of the inverses are nothing beside x past 10^6, and overflow later.
fn precise_asinh(x: V) -> V {
    let size = abs(x);
    let value = precise_log1p(size + size * size / (1.0 + sqrt(size * size + 1.0)));
    return keep_nan(x, with_sign_of(x, select(value, log(size) + LOG_2, size > V(1e6))));
}
fn precise_acosh(x: V) -> V {
    let over = x - 1.0;
    let value = select(precise_log1p(over + sqrt(over * (over + 2.0))), log(x) + LOG_2, x > V(1e6));
    return keep_nan(x, select(value, V(not_a_number()), x < V(1.0)));
}
fn precise_atanh(x: V) -> V {
    let size = abs(x);
    let value = with_sign_of(x, 0.5 * precise_log1p(2.0 * size / (1.0 - size)));
    return keep_nan(x, select(value, V(not_a_number()), size > V(1.0)));
}

// asin(|x|) up to 0.5; above, half of acos(|x|).
fn asin_part(size: V) -> V {
    let large = size > V(0.5);
    let z = select(size * size, 0.5 * (1.0 - size), large);
    let s = select(size, sqrt(z), large);
    let series = (((4.2163199048e-2 * z + 2.4181311049e-2) * z + 4.5470025998e-2) * z + 7.4953002686e-2) * z
        + 1.6666752422e-1;
    return select(s + s * z * series, V(not_a_number()), size > V(1.0));
}
fn precise_asin(x: V) -> V {
    let part = asin_part(abs(x));
    return keep_nan(x, with_sign_of(x, select(part, HALF_PI - 2.0 * part, abs(x) > V(0.5))));
}
fn precise_acos(x: V) -> V {
    let part = asin_part(abs(x));
    let large = select(2.0 * part, 2.0 * HALF_PI - 2.0 * part, x < V());
    return keep_nan(x, select(HALF_PI - with_sign_of(x, part), large, abs(x) > V(0.5)));
}

// The angle of the point (x, y), from -pi to pi.
fn precise_atan2(y: V, x: V) -> V {
    let near = min(abs(x), abs(y));
    let far = max(abs(x), abs(y));
    let both = is_infinite(near) | (far == V());
    let t = select(near / far, select(V(), V(1.0), far > V()), both);
    let turned = t > V(0.4142135624);   // by an eighth of a turn
    let u = select(t, (t - 1.0) / (t + 1.0), turned);
    let z = u * u;
    let series = ((8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1) * z - 3.33329491539e-1;
    let angle = u + u * z * series + select(V(), V(0.5 * HALF_PI), turned);
    let steep = select(angle, HALF_PI - angle, abs(y) > abs(x));
    let behind = bitcast<vec4<u32>>(x) >= vec4<u32>(0x80000000u);   // -0 too
    return keep_nan(x, keep_nan(y, with_sign_of(y, select(steep, 2.0 * HALF_PI - steep, behind))));
}

fn precise_erf(x: V) -> V {
    let z = x * x;
    let series = (((((7.853861353153693e-5 * z - 8.010193625184903e-4) * z + 5.188327685732524e-3) * z
        - 2.685381193529856e-2) * z + 1.128358514861418e-1) * z - 3.761262582423300e-1) * z + 1.128379165726710;
    return keep_nan(x, select(with_sign_of(x, 1.0 - erf_complement(abs(x))), x * series, abs(x) < V(1.0)));
}
