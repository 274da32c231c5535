// Q5_K. Planes: nibbles, fifth bits, heads of 256 quants.
#const HEADS = "plane2"
#include "blocks/five_bits.wgsl"
#include "blocks/k_scales.wgsl"
