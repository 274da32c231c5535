// Values put into out at the places that pairs name: (place, number of a point), in order.
// One thread per pair and element of what a place stands for; where several pairs have one place, one of them works.
// JOIN: it joins the values of all of them in their order (sum, prod, mean, amax or amin), and with INCLUDE what out has
// there; "" puts the last one.
#params points: u32, parts: u32   // elements that a place stands for, which are the box of places()
#include "scatter/places.wgsl"
#include "scatter/value.wgsl"
#read pairs: vec2<u32>
#write out: $T

#if JOIN in ("amax", "amin")
// The better of two; NaN is better than any number.
fn better(a: $T, b: $T) -> $T {
    #if T == "f32"
    if ((bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u) { return a; }
    if ((bitcast<u32>(b) & 0x7fffffffu) > 0x7f800000u) { return b; }
    #end
    return ${"max" if JOIN == "amax" else "min"}(a, b);
}
#end

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.points * params.parts) { return; }
    let n = i / params.parts;
    let pair = load_pairs(n);
    let part = places(i % params.parts);
    let at = pair.x + part.x;
    let own = part.y;
    #if JOIN
    if (n > 0u) {
        if (load_pairs(n - 1u).x == pair.x) { return; }
    }
    #if INCLUDE
    var sum = load_out(at);
    var next = n;
    #else
    var sum = value_of(pair.y, own);
    var next = n + 1u;
    #end
    for (; next < params.points; next++) {
        if (load_pairs(next).x != pair.x) { break; }
        let value = value_of(load_pairs(next).y, own);
        #if JOIN in ("amax", "amin")
        sum = better(sum, value);
        #elif JOIN == "prod"
        sum *= value;
        #else
        sum += value;
        #end
    }
    #if JOIN == "mean"
    let count = next - n + ${1 if INCLUDE else 0}u;
    #if T == "i32"
    let quotient = sum / i32(count);
    sum = quotient - select(0, 1, sum < quotient * i32(count));   // rounded down
    #else
    sum /= f32(count);
    #end
    #end
    store_out(at, sum);
    #else
    if (n + 1u < params.points) {
        if (load_pairs(n + 1u).x == pair.x) { return; }
    }
    store_out(at, value_of(pair.y, own));
    #end
}
