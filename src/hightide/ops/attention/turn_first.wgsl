// Before the keys are read, of a tile of one row: its q is normed and turned for this workgroup, which has all heads that
// share the kv head, and its key and value go to their place. OWN: whether they are this workgroup's to write.
    let own_place = key_row(tile, min(position, keys - 1u));
    for (var i = lane; i < (params.group + 2u) * params.pairs; i += LANES) {
        let n = i / params.pairs;   // heads of q, then the key and the value
        let head = select(params.heads + kv_head + (n - params.group) * params.kv_heads, kv_head * params.group + n, n < params.group);
        let turned = turned_pair(tile.first, min(position, params.angles - 1u), head, i % params.pairs);
        if (n < params.group) {
            turned_q[n * params.depth + turned.first] = turned.a;
            turned_q[n * params.depth + turned.second] = turned.b;
        } else if ($OWN) {
            let to = (own_place * params.kv_heads + kv_head) * params.depth;
            if (n == params.group) {
                store_k(to + turned.first, turned.a);
                store_k(to + turned.second, turned.b);
            } else {
                store_v(to + turned.first, turned.a);
                store_v(to + turned.second, turned.b);
            }
        }
    }
    storageBarrier();
    workgroupBarrier();
