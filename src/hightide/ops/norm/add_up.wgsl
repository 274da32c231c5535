    // Within a kernel: every lane adds up the sums of all, by PARTIAL in workgroup memory.
    $PARTIAL[lane] = sum;
    workgroupBarrier();
    sum = $T();
    for (var i = 0u; i < LANES; i++) { sum += $PARTIAL[i]; }
