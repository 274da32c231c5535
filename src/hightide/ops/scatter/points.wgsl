// pairs[o] = (the place in x that the index tensors name at o, o). One thread per pair.
#include "gather/picked.wgsl"
#write pairs: vec2<u32>

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i < params.numel) { pairs[i] = vec2<u32>(source(i), i); }
}
