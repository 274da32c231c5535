// Per row of logits with a label: its share of the mean loss, and the gradient (softmax - one hot) / n_valid.
// One workgroup per row. Lanes keep a maximum and a sum of their own; each adds up all of them: one barrier.
// Rows whose label is negative count nothing and have no gradient.
#params rows: u32, width: u32, n_valid: f32
#read logits: f32, labels: i32
#write losses: f32, gradient: f32

var<workgroup> parts: array<vec2<f32>, 64>;   // maximum, sum of exp(logit - maximum)

#main 64
    let row = group_number(group, groups);
    let start = row * params.width;
    let mine = row < params.rows;
    var most = -3.4e38;
    var sum = 0.0;
    if (mine) {
        for (var i = lane; i < params.width; i += 64u) { most = max(most, load_logits(start + i)); }
        for (var i = lane; i < params.width; i += 64u) { sum += exp(load_logits(start + i) - most); }
    }
    parts[lane] = vec2<f32>(most, sum);
    workgroupBarrier();
    if (!mine) { return; }
    most = -3.4e38;
    for (var i = 0u; i < min(64u, params.width); i++) { most = max(most, parts[i].x); }
    sum = 0.0;
    for (var i = 0u; i < min(64u, params.width); i++) { sum += parts[i].y * exp(parts[i].x - most); }
    let label = labels[row];
    let counts = label >= 0;
    let at = u32(clamp(label, 0, i32(params.width) - 1));
    if (lane == 0u) {
        store_losses(row, select(0.0, (most + log(sum) - load_logits(start + at)) / params.n_valid, counts));
    }
    for (var i = lane; i < params.width; i += 64u) {
        let share = exp(load_logits(start + i) - most) / sum - select(0.0, 1.0, i == at);
        store_gradient(start + i, select(0.0, share / params.n_valid, counts));
    }
}
