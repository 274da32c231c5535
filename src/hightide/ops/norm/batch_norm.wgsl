// out = (x - mean) / sqrt(variance + eps) * weight + bias, with statistics per channel of x [N, C, ...].
// One thread per element. WEIGHT, BIAS: there is one. SCALES: 1 / sqrt(variance + eps) is given instead of variances.
#params numel: u32, channels: u32, spatial: u32
#params eps: f32 if not SCALES
#read x: f32, means: f32, spreads: f32
#read weight: f32 if WEIGHT
#read bias: f32 if BIAS
#write out: f32

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.numel) { return; }
    let c = i / params.spatial % params.channels;
    #if SCALES
    var value = (load_x(i) - load_means(c)) * load_spreads(c);
    #else
    var value = (load_x(i) - load_means(c)) / sqrt(load_spreads(c) + params.eps);
    #end
    #include "norm/affine.wgsl"
    store_out(i, value);
}
