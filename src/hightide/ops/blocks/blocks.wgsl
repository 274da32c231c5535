// Weights in blocks, as kernels read them: 32 quants to a block, whatever the file's block is. A weight is
// quant * scale + least, with a scale for each run of 16 or for all 32. A chunk is four quants.
// TYPE: the file of unpack/ that reads the weights. It declares their bindings, and defines `open_block`, `scale_at`,
// `four_scales`, `four` (the quants of chunk h, in units of `quant_unit(h)`) and `quant_unit`.
// LOOPED: chunks are taken one by one, by numbers that are no constants.
// ALIGNED: the scales of four rows lie together, and kernels ask for four rows from a multiple of four on.
#const RUNS = 1          // scales to a block
#const MINIMUM = True    // `least` is not always 0
struct Block { q: vec4<u32>, extra: vec4<u32> }
struct Scale { run: vec2<f32>, least: f32 }                        // of one row
struct Scales { run: array<vec4<f32>, 2>, least: vec4<f32> }       // of four
#include "blocks/unpack/$TYPE.wgsl"
#const CHUNKS = 4 if RUNS == 2 else 8    // to a scale
