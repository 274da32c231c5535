// out = distances between rows of x and rows of y: (sum |x - y|^p)^(1/p) over `width` elements.
// One thread per distance. NORM: "0" counts the elements that differ, "1", "2", "max" for p = infinity, or "p".
// PAIRS: y is x, and every row is measured to those after it; else every row of x to every row of y, by batches.
#params numel: u32, width: u32
#params rows: u32                                                       // of x, or of y where it is another
#params x_rows: u32, first: i32 if not PAIRS                            // batch dims before `first` are 1
#params batch_dims: array<vec4<u32>, 2> if not PAIRS
#params x_strides: array<vec4<u32>, 2>, y_strides: array<vec4<u32>, 2> if not PAIRS
#params p: f32 if NORM == "p"
#read x: f32
#read y: f32 if not PAIRS
#write out: f32

#const Y = "load_x" if PAIRS else "load_y"

#if NORM == "p"
// Of a number that is not negative; pow may drop NaN.
fn power(x: f32, p: f32) -> f32 {
    if (bitcast<u32>(x) > 0x7f800000u || x == 0.0) { return x; }
    return pow(x, p);
}
#end

// Where the two rows of a distance begin.
fn rows_of(i: u32) -> vec2<u32> {
    #if PAIRS
    var row = 0u;
    var rest = i;
    while (rest >= params.rows - 1u - row) {
        rest -= params.rows - 1u - row;
        row++;
    }
    return vec2<u32>(row, row + 1u + rest) * params.width;
    #else
    var at = vec2<u32>(i / params.rows % params.x_rows, i % params.rows) * params.width;
    var rest = i / params.rows / params.x_rows;
    for (var d = 7; d >= params.first; d--) {
        let size = params.batch_dims[d >> 2u][d & 3];
        at += rest % size * vec2<u32>(params.x_strides[d >> 2u][d & 3], params.y_strides[d >> 2u][d & 3]);
        rest = rest / size;
    }
    return at;
    #end
}

#main 64
    let i = group_number(group, groups) * 64u + lane;
    if (i >= params.numel) { return; }
    let at = rows_of(i);
    var sum = 0.0;
    for (var k = 0u; k < params.width; k++) {
        let distance = abs(load_x(at.x + k) - $Y(at.y + k));
        #if NORM == "0"
        sum += select(0.0, 1.0, distance != 0.0);
        #elif NORM == "1"
        sum += distance;
        #elif NORM == "2"
        sum += distance * distance;
        #elif NORM == "max"
        // A compiler may take NaN for impossible, so bits are compared; of numbers that are not negative they are in order.
        sum = bitcast<f32>(max(bitcast<u32>(sum), bitcast<u32>(distance)));
        #else
        sum += power(distance, params.p);
        #end
    }
    #if NORM == "2"
    sum = sqrt(sum);
    #elif NORM == "p"
    sum = power(sum, 1.0 / params.p);
    #end
    store_out(i, sum);
}
