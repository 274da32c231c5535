// Floats in GGUF's types.
#include "blocks/planes.wgsl"
#include "blocks/as_they_are.wgsl"
