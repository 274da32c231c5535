"""Language models that see and hear, for `make_programs.py`: an encoder, `token_embedding` and `text_decoder`.

The methods are those of ExecuTorch's multimodal runner. `llava` is taken apart as its own example does it: the text
model is the exporter's Llama, which is given the position of the first token. (The example pads images of any size in
the program; the Vulkan partitioner cannot export that, so here they come normalised.) `voxtral` is taken apart as
optimum-executorch does it: audio comes in windows, and the text model has a static cache and is given the position of
every token.

    python tests/conformance/multimodal.py

writes `<name>_answer.npz` for each: a prompt with an image or audio, and the eager model's greedy answer with logits.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch
from decoders import RmsNorm, rotated
from modules import Ids, Module, Pixels, Places, Shape, examples
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, HEAD_DIM, CONTEXT, MOST = 96, 32, 4, 8, 80, 40
SEEN, PATCH = 28, 7  # an image becomes 16 rows
MELS, FRAMES = 80, 100  # of a window of one second; it becomes 25 rows
ANSWER = 12  # tokens


class Llava(nn.Module):
    """A CLIP tower and a projector before the exporter's Llama; S live."""

    def __init__(self) -> None:
        from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

        super().__init__()
        vision = CLIPVisionConfig(
            hidden_size=24,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=SEEN,
            patch_size=PATCH,
        )
        text = LlamaConfig(
            hidden_size=WIDTH,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=HEADS,
            num_key_value_heads=2,
            vocab_size=VOCABULARY,
            max_position_embeddings=CONTEXT,
        )
        whole = LlavaForConditionalGeneration(
            LlavaConfig(vision_config=vision, text_config=text, image_token_index=VOCABULARY - 1)
        )
        scatter(whole)
        self.vision, self.projector = whole.model.vision_tower, whole.model.multi_modal_projector
        self.tokens = whole.model.language_model.embed_tokens
        self.text = exporters_llama(whole)

    def vision_encoder(self, pixel_values: Tensor) -> Tensor:
        states = self.vision(pixel_values, output_hidden_states=True).hidden_states
        return self.projector(states[-2][:, 1:])

    def token_embedding(self, ids: Tensor) -> Tensor:
        return self.tokens(ids)

    def text_decoder(self, embeddings: Tensor, input_pos: Tensor) -> Tensor:
        return self.text(None, {"input_pos": input_pos}, embeddings)


def exporters_llama(whole: nn.Module) -> nn.Module:
    """The text model of transformers as the exporter's own, with its ops for caches and attention."""
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs
    from executorch.examples.models.llama.source_transformation.custom_kv_cache import (
        replace_kv_cache_with_custom_kv_cache,
    )
    from executorch.examples.models.llama.source_transformation.sdpa import replace_sdpa_with_custom_op

    config = whole.config.text_config
    text = construct_transformer(
        ModelArgs(
            dim=config.hidden_size,
            n_layers=config.num_hidden_layers,
            n_heads=config.num_attention_heads,
            n_kv_heads=config.num_key_value_heads,
            hidden_dim=config.intermediate_size,
            vocab_size=config.vocab_size,
            norm_eps=config.rms_norm_eps,
            max_batch_size=1,
            max_seq_len=MOST,
            max_context_len=CONTEXT,
            use_kv_cache=True,
            use_sdpa_with_kv_cache_op=True,
            enable_dynamic_shape=True,
            use_hf_rope=True,
        )
    )
    text = replace_sdpa_with_custom_op(replace_kv_cache_with_custom_kv_cache(text))
    names = {"q_proj": "wq", "k_proj": "wk", "v_proj": "wv", "o_proj": "wo"}
    weights = {}
    for name, weight in whole.state_dict().items():
        name = re.sub(r"self_attn\.(\w_proj)", lambda found: f"attention.{names[found[1]]}", name)
        for theirs, ours in (
            ("mlp.gate_proj", "feed_forward.w1"),
            ("mlp.down_proj", "feed_forward.w2"),
            ("mlp.up_proj", "feed_forward.w3"),
            ("input_layernorm", "attention_norm"),
            ("post_attention_layernorm", "ffn_norm"),
            ("lm_head", "output"),
            ("model.language_model.", ""),
        ):
            name = name.replace(theirs, ours)
        weights[name] = weight
    missing, _ = text.load_state_dict(weights, strict=False, assign=True)
    assert not [name for name in missing if "cache" not in name and "tok_embeddings" not in name], missing
    return text


class Voxtral(nn.Module):
    """Voxtral's audio tower and projector before a text model with a static cache; windows of audio and S live."""

    def __init__(self) -> None:
        from transformers import VoxtralConfig, VoxtralForConditionalGeneration

        super().__init__()
        audio = dict(
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_mel_bins=MELS,
            max_source_positions=FRAMES // 2,
        )
        text = dict(
            model_type="llama", hidden_size=WIDTH, intermediate_size=32, num_hidden_layers=1, vocab_size=VOCABULARY
        )
        whole = VoxtralForConditionalGeneration(VoxtralConfig(audio_config=audio, text_config=text))
        self.whole = whole.model
        self.tokens, self.norm = nn.Embedding(VOCABULARY, WIDTH), RmsNorm(WIDTH)
        self.layers = nn.ModuleList(StaticLayer() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        scatter(self)
        angles = torch.outer(torch.arange(CONTEXT), 10000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM))
        self.register_buffer("cos", angles.repeat(1, 2).cos())
        self.register_buffer("sin", angles.repeat(1, 2).sin())

    def audio_encoder(self, input_features: Tensor) -> Tensor:
        return self.whole.get_audio_features(input_features).pooler_output.unsqueeze(0)

    def token_embedding(self, ids: Tensor) -> Tensor:
        return self.tokens(ids)

    def text_decoder(self, inputs_embeds: Tensor, cache_position: Tensor) -> Tensor:
        seen = torch.arange(CONTEXT)[None] <= cache_position[:, None]  # [S, CONTEXT]
        x = inputs_embeds
        for layer in self.layers:
            x = layer(x, cache_position, self.cos[cache_position], self.sin[cache_position], seen)
        return self.head(self.norm(x))


class StaticLayer(nn.Module):
    """A decoder layer over a cache of fixed length, as StaticCache of transformers has it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = RmsNorm(WIDTH), RmsNorm(WIDTH)
        self.qkv, self.dense = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 48, bias=False), nn.Linear(48, WIDTH, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, HEADS, CONTEXT, HEAD_DIM))

    def forward(self, x: Tensor, position: Tensor, cos: Tensor, sin: Tensor, seen: Tensor) -> Tensor:
        split = self.qkv(self.norm1(x)).view(1, x.shape[1], 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
        q, k, v = rotated(split[0], cos, sin), rotated(split[1], cos, sin), split[2]
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)
        y = functional.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)
        x = x + self.dense(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.silu(self.up(self.norm2(x))))


def scatter(module: nn.Module) -> None:
    """Weights of a size that keeps activations near 1, so that an image shows in the answer."""
    for name, x in module.named_parameters():
        if x.dim() == 1:
            nn.init.normal_(x, 1.0 if "norm" in name and name.endswith("weight") else 0.0, 0.1)
        else:
            nn.init.normal_(x, std=1.0 if "embed" in name and x.dim() == 2 else 1.3 * x[0].numel() ** -0.5)


S = Dim("S", min=1, max=MOST - 1)
WINDOWS = Dim("windows", min=1, max=3)
MEAN, STD = [0.48, 0.46, 0.41], [0.27, 0.26, 0.28]
METADATA = {"get_max_seq_len": CONTEXT, "get_vocab_size": VOCABULARY, "get_bos_id": 1, "get_eos_ids": [2]}


def text_steps(*steps: tuple[int, int], every: bool = False) -> list[tuple[str, tuple[Shape, ...]]]:
    """(first position, tokens) of calls of the text decoder; `every`: it is given the position of each token."""
    return [
        ("text_decoder", ((1, count, WIDTH), Places(first, first + count) if every else first))
        for first, count in steps
    ]


def embedding_steps(*counts: int) -> list[tuple[str, tuple[Shape, ...]]]:
    return [("token_embedding", (Ids((1, count), VOCABULARY),)) for count in counts]


MULTIMODAL: dict[str, Module] = {
    "llava": Module(
        Llava,
        methods={
            "vision_encoder": (examples(Pixels((1, 3, SEEN, SEEN))), None),
            "token_embedding": (examples(Ids((1, 3), VOCABULARY)), ({1: S},)),
            "text_decoder": (examples((1, 3, WIDTH), 0), ({1: S}, None)),
        },
        schedule=[
            *[("vision_encoder", (Pixels((1, 3, SEEN, SEEN)),))] * 2,
            *embedding_steps(7, 1, 39, 3),
            *text_steps((0, 7), (7, 1), (8, 16), (24, 1), (0, 39), (39, 39), (78, 1), (5, 3)),
        ],
        untransposed=True,
        constants={**METADATA, "modality": "vision", "image_mean": MEAN, "image_std": STD},
    ),
    "voxtral": Module(
        Voxtral,
        methods={
            "audio_encoder": (examples((2, MELS, FRAMES)), ({0: WINDOWS},)),
            "token_embedding": (examples(Ids((1, 3), VOCABULARY)), ({1: S},)),
            "text_decoder": (examples((1, 3, WIDTH), Places(0, 3)), ({1: S}, {0: S})),
        },
        schedule=[
            *(("audio_encoder", (Pixels((count, MELS, FRAMES)),)) for count in (1, 3, 2)),
            *embedding_steps(7, 1, 39),
            *text_steps((0, 7), (7, 1), (8, 25), (33, 1), (0, 39), (39, 39), (78, 1), (5, 3), every=True),
        ],
        constants={**METADATA, "modality": "audio", "audio_token_id": VOCABULARY - 2},
    ),
}


@torch.no_grad()
def answer(name: str) -> dict[str, np.ndarray]:
    """A prompt with an image or audio in its midst, and the likeliest tokens behind it with their logits."""
    from hightide.media.audio import load_audio
    from hightide.media.images import Pixels as Taken
    from hightide.media.log_mel import log_mel

    torch.manual_seed(0)
    module = MULTIMODAL[name].make().eval().requires_grad_(False)
    rng = np.random.default_rng(1)
    before, after = rng.integers(3, VOCABULARY - 2, 5), rng.integers(3, VOCABULARY - 2, 6)
    if name == "llava":
        shown = rng.integers(0, 256, (4, 5, 3)).repeat(13, 0).repeat(12, 1).astype(np.uint8)
        pixels = Taken(SEEN, SEEN, True, "float32", mean=tuple(MEAN), std=tuple(STD)).of(shown)
        rows = module.vision_encoder(torch.from_numpy(pixels))
    else:
        shown = (np.sin(np.arange(24000) ** 1.3 / 40) * 9000).astype(np.int16)  # 1.5 s
        samples = load_audio(shown, 16000)
        windows = [log_mel(samples[first : first + 16000], MELS, FRAMES) for first in (0, 16000)]
        rows = module.audio_encoder(torch.from_numpy(np.array(windows)))
    start, end = (module.token_embedding(torch.from_numpy(ids)[None]) for ids in (before, after))
    given, position, made, logits = torch.cat([start, rows, end], 1), 0, [], []
    for _ in range(ANSWER):
        count = given.shape[1]
        positions = torch.arange(position, position + (count if name == "voxtral" else 1))
        last = module.text_decoder(given, positions).reshape(-1, VOCABULARY)[-1]
        position += count
        logits.append(last.numpy())
        made.append(int(last.argmax()))
        given = module.token_embedding(torch.tensor([made[-1:]]))
    arrays = dict(shown=shown, before=before, after=after, rows=rows[0].numpy())
    return arrays | dict(ids=np.array(made), logits=np.array(logits))


if __name__ == "__main__":
    for each in MULTIMODAL:
        np.savez_compressed(Path(__file__).parent / f"{each}_answer.npz", **answer(each))
