        // Within a kernel, before each side: what was summed up so far is the gate.
        #for r in ROWS
        gate$r = total$r;
        total$r = vec4<f32>();
        #end
