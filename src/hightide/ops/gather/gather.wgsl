// out[o] = x[o's own place + sum over the index tensors of index(o) * step].
#include "gather/picked.wgsl"
#include "movement/taken.wgsl"
