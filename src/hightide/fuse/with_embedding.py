"""A decoder of embeddings and the graph that makes them of tokens, as one decoder of tokens.

Multimodal programs have both as methods, so that rows of images can go in between. In one graph they stay on the
device: the tokens from the end of the vocabulary on stand for rows of one more input, `media`. Not a pass, since it
makes one graph of two.
"""

from __future__ import annotations

from dataclasses import replace

from hightide.errors import UnsupportedError
from hightide.graph.graph import Graph, OpCall
from hightide.graph.values import ListValue, LiteralValue, TensorValue, Value


def with_embedding(embedding: Graph, decoder: Graph, rows: int) -> Graph:
    """(tokens, position, media [rows, width]) -> logits, of tokens -> embeddings and (embeddings, position) -> logits.

    UnsupportedError if the embeddings that one gives are not what the other takes.
    """
    (tokens,), (made,) = embedding.inputs, embedding.outputs
    given, position = decoder.inputs
    gives, takes = embedding.values[made], decoder.values[given]
    logits = decoder.values[decoder.outputs[0]]
    assert isinstance(gives, TensorValue) and isinstance(takes, TensorValue) and isinstance(logits, TensorValue)
    if gives.dims[-1:] != takes.dims[-1:] or len(gives.dims) != 3 or gives.dtype != takes.dtype:
        sides = f"gives {gives.dtype}{list(gives.dims)}", f"takes {takes.dtype}{list(takes.dims)}"
        raise UnsupportedError(f"token_embedding {sides[0]} and text_decoder {sides[1]}")
    offset = len(decoder.values)
    values: list[Value] = [*decoder.values, *(_moved(value, offset) for value in embedding.values)]

    def add(value: Value) -> int:
        values.append(replace(value, id=len(values)))
        return len(values) - 1

    ids, vocabulary = values[offset + tokens], logits.dims[-1]
    assert isinstance(ids, TensorValue)
    values[offset + tokens] = replace(ids, host_dtype=ids.dtype)  # now made by a call
    all_tokens = add(replace(ids, dims=(1, takes.dims[1])))
    media = add(TensorValue(0, (rows, takes.dims[-1]), takes.dtype, takes.dtype))
    values[offset + made] = replace(gives, id=offset + made, host_dtype=gives.dtype)
    values[given] = replace(takes, host_dtype=takes.dtype)
    low, high, first = (add(LiteralValue(0, number)) for number in (0, vocabulary - 1, vocabulary))
    text = {"a": all_tokens, "low": low, "high": high}  # a row of an image has some embedding, which nobody reads
    mixed = {"x": offset + made, "tokens": all_tokens, "media": media, "first": first}
    calls = [
        OpCall(0, "aten.clamp.default", text, offset + tokens),
        *(_moved_call(call, offset) for call in embedding.calls),
        OpCall(0, "hightide.media_rows.default", mixed, given),
        *decoder.calls,
    ]
    numbered = tuple(replace(call, index=n) for n, call in enumerate(calls))
    return Graph(tuple(values), numbered, (all_tokens, position, media), decoder.outputs)


def _moved(value: Value, offset: int) -> Value:
    if isinstance(value, ListValue):
        return ListValue(value.id + offset, tuple(item + offset for item in value.items))
    return replace(value, id=value.id + offset)


def _moved_call(call: OpCall, offset: int) -> OpCall:
    args = {name: id + offset for name, id in call.args.items()}
    return replace(call, args=args, out=call.out + offset)
