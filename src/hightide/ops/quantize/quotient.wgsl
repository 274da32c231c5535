// Part of kernels: quotient(a, b), a / b rounded to the nearest float. WGSL's own `/` may be off by 2.5 units in the last
// place, which at a tie is another code. Nothing here depends on how floats are fused or reassociated: the estimate is
// made right by the remainder in integers, of which the low 32 bits are enough. Where a or b is 0 or subnormal, or the
// quotient would be, or is not finite, `/` decides.
fn quotient(a: f32, b: f32) -> f32 {
    let a_bits = bitcast<u32>(a);
    let b_bits = bitcast<u32>(b);
    let a_exponent = i32((a_bits >> 23u) & 255u);
    let b_exponent = i32((b_bits >> 23u) & 255u);
    let above = (a_bits & 0x7fffffu) | 0x800000u;
    let below = (b_bits & 0x7fffffu) | 0x800000u;
    let less = select(0u, 1u, above < below);                // then one bit more, for 24 bits of the quotient
    let exponent = a_exponent - b_exponent + 127 - i32(less);
    if (min(a_exponent, b_exponent) == 0 || max(a_exponent, b_exponent) == 255 || exponent < 1 || exponent > 254) {
        return a / b;
    }
    let shift = 23u + less;
    var found = i32(f32(above) / f32(below) * f32(1u << shift));
    var rest = bitcast<i32>((above << shift) - u32(found) * below);
    let off = i32(round(f32(rest) / f32(below)));
    found += off;
    rest -= off * i32(below);
    if (2 * rest > i32(below)) { found += 1; }
    if (2 * rest < -i32(below)) { found -= 1; }
    // A quotient that is rounded up to the next power of two carries into the exponent.
    return bitcast<f32>(((a_bits ^ b_bits) & 0x80000000u) + (u32(exponent) << 23u) + u32(found - 0x800000));
}
