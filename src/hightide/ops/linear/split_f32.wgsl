            // Within split.wgsl: the products of block b, with x in f32.
            #for r in ROWS
            var x_sum$r = 0.0;
            #end
            #for e in RUNS
            {
                #for r in ROWS
                var sum$r = vec4<f32>();
                #end
                for (var h = ${e * CHUNKS}u; h < ${(e + 1) * CHUNKS}u; h++) {
                    #for c in 4
                    let w$c = four(block$c, columns[$c], b, h);
                    #end
                    #for r in ROWS
                    let chunk$r = load_x(row$r + b * 8u + h);
                    #if MINIMUM
                    x_sum$r += dot(chunk$r, vec4<f32>(1.0));
                    #end
                    let a$r = chunk$r * quant_unit(h);
                    sum$r += vec4<f32>(dot(w0, a$r), dot(w1, a$r), dot(w2, a$r), dot(w3, a$r));
                    #end
                }
                #for r in ROWS
                total$r += sum$r * scales.run[$e];
                #end
            }
            #end
            #include "linear/add_minimum.wgsl"
