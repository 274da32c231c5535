// An element of x. KIND: the type that x is held in (f32, i32, u8 or i8); C: the type that is computed in.
#const X = "u32" if KIND in ("u8", "i8") else KIND
#read x: $X

fn element(at: u32) -> $C {
    #if KIND == "u8"
    return $C((x[at >> 2u] >> ((at & 3u) * 8u)) & 255u);
    #elif KIND == "i8"
    return $C(extractBits(bitcast<i32>(x[at >> 2u]), (at & 3u) * 8u, 8u));
    #else
    return $C(load_x(at));
    #end
}
