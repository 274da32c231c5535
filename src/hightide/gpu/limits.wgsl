// What an adapter can do at most. WORK is what a thread does: "stream" reads, "copy" copies, "multiply" multiplies and
// adds, "nothing" does nothing. THREADS in all take PER_THREAD vec4s each (or products per chain): every THREADS-th one,
// so that neighbours read neighbours, or, BLOCKED, a run of its own. Loops are written out UNROLL times, or software
// adapters would measure their loops; CHAINS are independent sums. Sums and products are written only where no compiler
// can foresee it, so that none leaves the work out.
#read input: vec4<f32>
#write output: vec4<f32>

const PER_THREAD = ${PER_THREAD}u;
const UNROLL = ${UNROLL}u;
#if BLOCKED
const STEP = 1u;
const FIRST = PER_THREAD;
#else
const STEP = ${THREADS}u;
const FIRST = 1u;
#end

@compute @workgroup_size($LANES)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    #if WORK == "stream"
    var a = vec4<f32>();
    var b = vec4<f32>();
    var at = id.x * FIRST;
    for (var n = 0u; n < PER_THREAD; n += UNROLL) {
        #for n in UNROLL
        ${"b" if n % 2 else "a"} += load_input(at + ${n}u * STEP);
        #end
        at += UNROLL * STEP;
    }
    if (dot(a, b) == 1.5) {
        store_output(id.x, a);
    }
    #elif WORK == "copy"
    var at = id.x * FIRST;
    for (var n = 0u; n < PER_THREAD; n += UNROLL) {
        #for n in UNROLL
        store_output(at + ${n}u * STEP, load_input(at + ${n}u * STEP));
        #end
        at += UNROLL * STEP;
    }
    #elif WORK == "multiply"
    let x = load_input(0u) + f32(id.x) * 1e-9;
    let y = load_input(1u);
    #for c in CHAINS
    var sum$c = x * $c.5;
    #end
    for (var n = 0u; n < PER_THREAD; n += UNROLL) {
        #for n in UNROLL
        #for c in CHAINS
        sum$c = fma(sum$c, x, y);
        #end
        #end
    }
    var total = sum0;
    #for c in CHAINS - 1
    total += sum${c + 1};
    #end
    if (dot(total, total) == 1.5) {
        store_output(id.x, total);
    }
    #else
    if (id.x == 0xFFFFFFFFu) {
        store_output(0u, load_input(0u));
    }
    #end
}
