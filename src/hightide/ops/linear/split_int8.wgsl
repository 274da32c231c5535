            // Within split.wgsl: the products of block b, with x in 8 bits and weights of 4.
            #for c in 4
            let even$c = block$c.q & vec4<u32>(0x0f0f0f0fu);
            let odd$c = (block$c.q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
            #end
            #for r in ROWS
            {
                let low = load_codes((row$r + b) * 2u);
                let high = load_codes((row$r + b) * 2u + 1u);
                let factor = load_factors(row$r + b);
                var sum = vec4<i32>();
                #for c in 4
                sum[$c] = dot4I8Packed(even$c.x, low.x) + dot4I8Packed(odd$c.x, low.y)
                    + dot4I8Packed(even$c.y, low.z) + dot4I8Packed(odd$c.y, low.w)
                    + dot4I8Packed(even$c.z, high.x) + dot4I8Packed(odd$c.z, high.y)
                    + dot4I8Packed(even$c.w, high.z) + dot4I8Packed(odd$c.w, high.w);
                #end
                total$r += vec4<f32>(sum) * factor.x * scales.run[0] + factor.y * scales.least;
            }
            #end
