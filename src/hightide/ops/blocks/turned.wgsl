// A block for the lane of a quad that takes its pairs of chunks in another order: pair t is pair `lane ^ t` of the block.
// PAIRS_IN says what holds a pair of chunks: a "word" of nibbles, also with a fifth bit ("byte") or two more ("half"), two
// words ("words"), or nothing (""): then the chunk's number is turned instead, by TURN.
#const TURN = "" if PAIRS_IN else " ^ (lane * 2u)"
fn turned(block: Block, lane: u32) -> Block {
    let odd = (lane & 1u) == 1u;
    let high = lane >= 2u;
    #if PAIRS_IN == "words"
    let q = select(block.q, block.q.zwxy, odd);
    let extra = select(block.extra, block.extra.zwxy, odd);
    return Block(select(q, extra, high), select(extra, q, high));
    #elif PAIRS_IN
    var q = select(block.q, block.q.yxwz, odd);
    q = select(q, q.zwxy, high);
    var extra = block.extra;
    #if PAIRS_IN == "byte"
    extra = select(extra, ((extra & vec4<u32>(0xff00ffu)) << vec4<u32>(8u)) | ((extra >> vec4<u32>(8u)) & vec4<u32>(0xff00ffu)), odd);
    extra = select(extra, (extra << vec4<u32>(16u)) | (extra >> vec4<u32>(16u)), high);
    #elif PAIRS_IN == "half"
    extra = select(extra, (extra << vec4<u32>(16u)) | (extra >> vec4<u32>(16u)), odd);
    extra = select(extra, extra.yxwz, high);
    #end
    return Block(q, extra);
    #else
    return block;
    #end
}
