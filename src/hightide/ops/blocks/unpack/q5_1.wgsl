// Q5_1: 32 quants of 4 + 1 bits, a scale and a minimum (f16).
// Planes: nibbles, fifth bits, (scale, minimum) of four rows together.
#const PAIRS = "plane2"
#include "blocks/five_bits.wgsl"
#include "blocks/pairs.wgsl"
