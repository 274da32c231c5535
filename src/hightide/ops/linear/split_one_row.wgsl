            // Within split_f32.wgsl, for one row: all of x first, then one column after the other, written out. So a GPU has
            // all loads of a block under way at once.
            #for n in 8
            let plain$n = load_x(row0 + b * 8u + ${n}u);
            #if NORM
            squares0 += dot(plain$n, plain$n);
            let chunk$n = plain$n * load_norm(b * 8u + ${n}u);
            #else
            let chunk$n = plain$n;
            #end
            #if MINIMUM
            x_sum0 += dot(chunk$n, vec4<f32>(1.0));
            #end
            let a$n = chunk$n * quant_unit(${n}u);
            #end
            #for e in RUNS
            {
                var sum = vec4<f32>();
                #for c in 4
                #for n in CHUNKS
                sum[$c] += dot(four(block$c, columns[$c], b, ${e * CHUNKS + n}u), a${e * CHUNKS + n});
                #end
                #end
                total0 += sum * scales.run[$e];
            }
            #end
