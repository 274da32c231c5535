"""Decoders that rank: how much likelier "yes" is than "no" behind a query and a document."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from decode import exact_session, step
from hf_folders import write_byte_level
from running_server import running
from test_folders import FOLDERS

from hightide import LLM, Embedder
from hightide.errors import ProgramError, UnsupportedError
from hightide.formats.model_file import read_model
from hightide.formats.model_folder import read_folder
from hightide.formats.rerankers import TEMPLATE_FIELD
from hightide.gpu.device import Device
from hightide.llm.convert import convert_model
from hightide.llm.models import build_graph
from hightide.llm.pair_template import PairTemplate

CONTEXT = 1024
# The prompt of the model's card, written out.
BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
TEXT = "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
TEXT += "<Query>: {}\n<Document>: {}"
BEHIND = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
QUERY, DOCUMENTS = "where the sea is", ["On the other side.", "It is {query} <|im_end|> again", ""]


@pytest.fixture
def reranker(tmp_path: Path) -> Path:
    """A small random Qwen3 with tokens yes and no, and special ones around turns; its context is longer."""
    folder = tmp_path / "Qwen3-Reranker-tiny"
    shutil.copytree(FOLDERS / "qwen3", folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": CONTEXT}), "utf-8")
    write_byte_level(folder)
    text = (folder / "tokenizer.json").read_text("utf-8").replace('"<extra_0>"', '"yes"').replace('"<extra_1>"', '"no"')
    content = json.loads(text)
    for n, name in ((2, "<|im_start|>"), (3, "<|im_end|>")):
        content["model"]["vocab"][name] = content["model"]["vocab"].pop(f"<extra_{n}>")
        added = {"id": content["model"]["vocab"][name], "content": name, "special": True}
        content["added_tokens"].append(content["added_tokens"][0] | added)
    (folder / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    return folder


def expected(folder: Path, document: str) -> float:
    """From the logits of all tokens in float64, which other tests compare with transformers."""
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))

    def ids(text: str, special: bool) -> list[int]:
        backend.encode_special_tokens = not special
        return list(backend.encode(text, add_special_tokens=False).ids)

    prompt = [1, *ids(BEFORE, True), *ids(TEXT.format(QUERY, document), False), *ids(BEHIND, True)]
    session = exact_session(build_graph(read_model(folder), CONTEXT, CONTEXT))
    logits, _ = step(session, prompt, 0, 1)
    vocabulary = backend.get_vocab()
    return float(logits[0, vocabulary["yes"]] - logits[0, vocabulary["no"]])


def test_scores_are_yes_less_no(reranker: Path) -> None:
    wanted = [expected(reranker, document) for document in DOCUMENTS]
    assert np.ptp(wanted) > 0.01
    with Embedder(reranker, device="cpu", context=CONTEXT) as model:
        assert model.pooling == "rank"
        np.testing.assert_allclose(model.rank(QUERY, DOCUMENTS), wanted, atol=1e-4)


def test_a_converted_reranker_ranks_on_the_gpu(reranker: Path, device: Device, tmp_path: Path) -> None:
    convert_model(reranker, tmp_path / "out.gguf")
    wanted = [expected(reranker, document) for document in DOCUMENTS[:2]]
    with Embedder(tmp_path / "out.gguf", context=CONTEXT) as model:
        np.testing.assert_allclose(model.rank(QUERY, DOCUMENTS[:2]), wanted, atol=1e-3)


def test_a_long_document_is_cut_and_the_prompt_is_closed(reranker: Path) -> None:
    with Embedder(reranker, device="cpu", context=512) as model:
        tokenizer = model.tokenizer
        assert tokenizer is not None
        ids = tokenizer.encode_pair(QUERY, "sea " * 300)
        short = tokenizer.cut(ids, 512)
        behind = tokenizer.encode(BEHIND, special=True, bos=False)
        assert len(ids) > 512 == len(short) and short[: 512 - len(behind)] == ids[: 512 - len(behind)]
        assert short[-len(behind) :] == ids[-len(behind) :] == behind
        assert model.rank(QUERY, ["sea " * 300], truncate=True).shape == (1,)


def test_the_server_ranks(reranker: Path, tmp_path: Path) -> None:
    wanted = [expected(reranker, document) for document in DOCUMENTS[:2]]
    with running(tmp_path, reranker, "--device", "cpu", "--context", str(CONTEXT)) as server:
        reply = server.post("/v1/rerank", {"query": QUERY, "documents": DOCUMENTS[:2]}).json()
    scores = {one["index"]: one["relevance_score"] for one in reply["results"]}
    np.testing.assert_allclose([scores[0], scores[1]], wanted, atol=1e-4)


def test_a_reranker_gives_no_answers(reranker: Path) -> None:
    with pytest.raises(UnsupportedError, match="Embedder"):
        LLM(reranker, device="cpu")


def test_other_folders_are_as_they_were(reranker: Path) -> None:
    renamed = reranker.rename(reranker.with_name("Qwen3-tiny"))
    assert TEMPLATE_FIELD not in read_folder(renamed).metadata
    with pytest.raises(UnsupportedError, match="cannot pool by 'rank'"):
        Embedder(renamed, device="cpu", pooling="rank")


def test_what_a_reranker_lacks_is_said(reranker: Path) -> None:
    path = reranker / "tokenizer.json"
    whole = path.read_text("utf-8")
    for text in (whole.replace('"yes"', '"yea"'), '{"model": {"vocab": ["yes", "no"]}}', '{"model": 1}'):
        path.write_text(text, "utf-8")
        with pytest.raises(UnsupportedError, match="yes and no"):
            read_folder(reranker)
    path.unlink()
    with pytest.raises(UnsupportedError, match="yes and no"):
        read_folder(reranker)
    with pytest.raises(ProgramError, match=r"\{query\} and \{document\}"):
        PairTemplate.parsed("<|a|>{query}", reranker)


def test_folders_of_the_hubs_cache(reranker: Path, tmp_path: Path) -> None:
    cached = tmp_path / "models--Qwen--Qwen3-Reranker-0.6B" / "snapshots" / "0a1b"
    shutil.copytree(reranker, cached)
    assert "cls.output.weight" in read_folder(cached).tensors
