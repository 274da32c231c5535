// out[i] = how many elements of an ordered sequence are less than values[i] (RIGHT: or equal), by bisection.
// One thread per value. Sequences have `count` elements; `together` values after each other belong to one.
// SORTER: it names the elements of a sequence in order. KIND: f32 or i32. Nothing is less than NaN, nor more.
// NUMBER: the only value is a parameter.
#params numel: u32, count: u32, together: u32, number: $KIND
#read values: $KIND if not NUMBER
#read sequence: $KIND
#read sorter: i32 if SORTER
#write out: i32

#if KIND == "f32"
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
#else
fn is_nan(x: i32) -> bool { return false; }
#end

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.numel) { return; }
    let start = i / params.together * params.count;
    let value = ${"params.number" if NUMBER else "load_values(i)"};
    var low = 0u;
    var high = params.count;
    while (low < high) {
        let middle = (low + high) / 2u;
        #if SORTER
        let found = load_sequence(start + u32(clamp(sorter[start + middle], 0, i32(params.count) - 1)));
        #else
        let found = load_sequence(start + middle);
        #end
        if (is_nan(found) || is_nan(value) || found ${"<=" if RIGHT else "<"} value) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    out[i] = i32(low);
}
