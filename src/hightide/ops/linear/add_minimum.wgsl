            // Within a kernel, behind each block: the share of a type's minimum.
            #if MINIMUM
            #for r in ROWS
            total$r += x_sum$r * scales.least;
            #end
            #end
