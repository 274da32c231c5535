// Part of kernels: the tensor NAME and `NAME_at(i)`, its element i. HELD says how it is held: "f32", "i32", or as bytes
// ("i8", "u8"), four to a word; "" for no tensor.
#const WORD = "u32" if HELD in ("i8", "u8") else HELD
#read $NAME: $WORD if HELD
#if HELD == "i8"
fn ${NAME}_at(i: u32) -> i32 { return extractBits(bitcast<i32>($NAME[i / 4u]), i % 4u * 8u, 8u); }
#elif HELD == "u8"
fn ${NAME}_at(i: u32) -> i32 { return i32(extractBits($NAME[i / 4u], i % 4u * 8u, 8u)); }
#elif HELD == "i32"
fn ${NAME}_at(i: u32) -> i32 { return $NAME[i]; }
#elif HELD
fn ${NAME}_at(i: u32) -> f32 { return load_$NAME(i); }
#end
