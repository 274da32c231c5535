                    // Within split_f32.wgsl: the products of chunk h.
                    #for c in 4
                    let w$c = four(block$c, columns[$c], b, h);
                    #end
                    #if NORM
                    let factor = load_norm(b * 8u + h);
                    #end
                    #for r in ROWS
                    #if NORM
                    let plain$r = load_x(row$r + b * 8u + h);
                    squares$r += dot(plain$r, plain$r);
                    let chunk$r = plain$r * factor;
                    #else
                    let chunk$r = load_x(row$r + b * 8u + h);
                    #end
                    #if MINIMUM
                    x_sum$r += dot(chunk$r, vec4<f32>(1.0));
                    #end
                    let a$r = chunk$r * quant_unit(h);
                    sum$r += vec4<f32>(dot(w0, a$r), dot(w1, a$r), dot(w2, a$r), dot(w3, a$r));
                    #end
