            // Within split.wgsl: the products of block b, with x in f32.
            #for r in ROWS
            var x_sum$r = 0.0;
            #end
            #if ADD and ROWS == 1
            #include "linear/split_one_row.wgsl"
            #else
            #for e in RUNS
            {
                #for r in ROWS
                var sum$r = vec4<f32>();
                #end
                #if ADD and ROWS == 2
                // Written out, a GPU has the loads of several chunks under way, and no branch for a chunk's kind. Four rows
                // would take twice the registers.
                #for n in CHUNKS
                {
                    let h = ${e * CHUNKS + n}u;
                    #include "linear/split_chunk.wgsl"
                }
                #end
                #else
                for (var h = ${e * CHUNKS}u; h < ${(e + 1) * CHUNKS}u; h++) {
                    #include "linear/split_chunk.wgsl"
                }
                #end
                #for r in ROWS
                total$r += sum$r * scales.run[$e];
                #end
            }
            #end
            #end
            #include "linear/add_minimum.wgsl"
