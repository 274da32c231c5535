// What the sink of a head adds to the total of a row's weights, whose largest score is `most`. Bounded, so that it is never
// infinite: a row is then as good as zero.
fn sink_weight(head: u32, most: f32) -> f32 { return exp(min(load_sinks(head) - most, 80.0)); }
