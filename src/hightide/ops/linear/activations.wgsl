// The activations that a gate may have.
fn silu(x: f32) -> f32 { return x / (1.0 + exp(-x)); }
fn gelu_tanh(x: f32) -> f32 {
    let inner = 0.7978845608 * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1.0 + tanh(clamp(inner, -15.0, 15.0)));
}
// The gate of gpt-oss; `up` is clamped as well, and 1 more.
fn clamped_swiglu(x: f32) -> f32 {
    let gate = min(x, 7.0);
    return gate / (1.0 + exp(-1.702 * gate));
}
// 0.5 x (1 + erf(x / sqrt 2)); erf by Abramowitz and Stegun 7.1.26, within 1.5e-7.
fn gelu(x: f32) -> f32 {
    let z = abs(x) * 0.7071067812;
    let t = 1.0 / (1.0 + 0.3275911 * z);
    let series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    return 0.5 * x * (1.0 + sign(x) * (1.0 - series * exp(-z * z)));
}
