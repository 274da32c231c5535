    // Within a kernel: every lane adds up the sums of all, by PARTIAL in workgroup memory.
    $PARTIAL[lane] = sum;
    workgroupBarrier();
    sum = $T();
    #if LANES <= 8
    for (var i = 0u; i < LANES; i++) { sum += $PARTIAL[i]; }
    #else
    // In two steps: of SIDE lanes, then of those. Written out, so that the loads are under way together.
    #const SIDE = 8 if LANES == 64 else 16
    #for i in SIDE
    sum += $PARTIAL[lane / ${SIDE}u * ${SIDE}u + ${i}u];
    #end
    workgroupBarrier();
    $PARTIAL[lane] = sum;
    workgroupBarrier();
    sum = $T();
    #for i in SIDE
    sum += $PARTIAL[${i * SIDE}u];
    #end
    #end
