// One AdamW step, in place: parameters decay, moments follow the gradient, parameters follow the moments.
// One thread per four elements; buffers are padded to whole vec4s. Results are written to the outputs too.
#params numel: u32, decay: f32, lr: f32, eps: f32   // decay: 1 - lr * weight decay
#params beta1: f32, rest1: f32, correction1: f32, beta2: f32, rest2: f32, correction2: f32   // rest: 1 - beta
#read gradient: vec4<f32>
#write p: vec4<f32>, m: vec4<f32>, v: vec4<f32>
#write p_out: vec4<f32>, m_out: vec4<f32>, v_out: vec4<f32>

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i * 4u >= params.numel) { return; }
    let g = load_gradient(i);
    let mean = load_m(i) * params.beta1 + g * params.rest1;
    let variance = load_v(i) * params.beta2 + g * g * params.rest2;
    let step = mean / params.correction1 / (sqrt(variance / params.correction2) + params.eps);
    let parameter = load_p(i) * params.decay - params.lr * step;
    store_p(i, parameter);
    store_m(i, mean);
    store_v(i, variance);
    store_p_out(i, parameter);
    store_m_out(i, mean);
    store_v_out(i, variance);
}
