"""How byte-level tokenizers cut text before they merge: the kinds that `tokenizer.ggml.pre` names."""

from __future__ import annotations

from dataclasses import dataclass

from hightide.errors import UnsupportedError


@dataclass(frozen=True)
class PreTokenizer:
    patterns: tuple[str, ...]  # applied in turn: matches and the gaps between them both become chunks
    ignore_merges: bool = False  # a chunk that is a token needs no merges
    add_bos: bool = False  # where the file does not say
    add_sep: bool = False  # the same of the token behind a whole text


def pretokenizer(kind: str) -> PreTokenizer:
    """The pre-tokenizer that `tokenizer.ggml.pre` names."""
    if kind not in KINDS:
        raise UnsupportedError(f"the pre-tokenizer {kind!r} is not supported; {', '.join(sorted(KINDS))} are")
    return KINDS[kind]


# The expressions that llama.cpp's src/llama-vocab.cpp has for each kind. Where it says that it approximates the
# model's own expression (it has no (?i:), nor classes for case and marks: tekken, gpt-4o), this is the model's own.
_ENGLISH = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = _ENGLISH + r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_REST_CASED = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_ASCII_SIGNS = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
_DEEPSEEK_CJK = "[一-龥ࠀ-一가-\ud7ff]+"


def _cased(suffix: str, digits: str, upper: str = _UPPER, lower: str = _LOWER, rest: str = _REST_CASED) -> str:
    """Words cut before a capital, as in camelCase."""
    start = r"[^\r\n\p{L}\p{N}]?"
    return f"{start}{upper}*{lower}+{suffix}|{start}{upper}+{lower}*{suffix}|{digits}{rest}"


def _not_han(letters: str) -> str:
    return letters.removesuffix("]") + r"&&[^\p{Han}]]"


def _kinds(table: dict[str, PreTokenizer]) -> dict[str, PreTokenizer]:
    return {kind: pre for names, pre in table.items() for kind in names.split()}


_BLOOM = " ?[^(\\s|.,!?…。，、।۔،)]+"
_CJK = "[一-龥぀-ゟ゠-ヿ]+"
_SIGNED_WORDS = _ASCII_SIGNS + r"[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
_DEEPSEEK_REST = r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_ASIAN = (
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
# The letters of scripts with two cases, as DeepSeek's first models list them.
_DEEPSEEK_LETTERS = (
    "[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-"
    "\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-"
    "\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-"
    "\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-"
    "\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-"
    "\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-"
    "\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-"
    "\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+"
)

KINDS = _kinds(
    {
        "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
        "gpt-2 phi-2 mpt olmo jais exaone4 a.x-4.0 mellum trillion granite-docling modern-bert gigachat "
        "jina-es jina-de jina-v2-es jina-v2-de": PreTokenizer((GPT2,)),
        "roberta-bpe jina-v1-en jina-v2-code": PreTokenizer((GPT2,), add_sep=True),
        "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": PreTokenizer((r"\p{N}", GPT2)),
        "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]")),
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano": PreTokenizer(
            (_WORDS + r"\p{N}{1,3}" + _REST,), ignore_merges=True, add_bos=True
        ),
        "dbrx smaug-bpe chatglm-bpe": PreTokenizer((_WORDS + r"\p{N}{1,3}" + _REST,)),
        "glm4 glm5": PreTokenizer((_WORDS + r"\p{N}{1,3}" + _REST,), ignore_merges=True),
        "minicpm5": PreTokenizer((r"\p{N}{1,3}", _WORDS + r"\p{N}+" + _REST), ignore_merges=True),
        "jais-2": PreTokenizer(
            (
                _WORDS + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)"
                r"|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s",
            )
        ),
        "qwen2 deepseek-r1-qwen megrez stablelm2 hunyuan grok-2 solar-open kormo f2llmv2": PreTokenizer(
            (_WORDS + r"\p{N}" + _REST,)
        ),
        "laguna": PreTokenizer((r"[^\n]+|\n+", _WORDS + r"\p{N}" + _REST)),
        "ufakzeka": PreTokenizer((r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST,)),
        "qwen35": PreTokenizer(
            (
                _ENGLISH + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
                r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            )
        ),
        "exaone-moe": PreTokenizer(
            (
                _ENGLISH + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
                r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
            )
        ),
        "bailingmoe bailingmoe2 llada-moe": PreTokenizer(
            (
                r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
                r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
            )
        ),
        "seed-coder": PreTokenizer((_WORDS + r"\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",)),
        "bloom poro-chat gpt3-finnish": PreTokenizer((_BLOOM,)),
        "viking": PreTokenizer((_BLOOM, r"\p{N}")),
        "chameleon": PreTokenizer(
            (
                "<sentinel:[0-9]+>",
                "IMGIMG[A-I]{1,4}Z",
                "[\\t\\n]|    |  ",
                r"\p{N}",
                r"[\p{P}!-/:-@\[-`{-~]",
                GPT2,
            ),
            add_bos=True,
        ),
        "tekken": PreTokenizer((_cased("", r"\p{N}"),), ignore_merges=True, add_bos=True),
        "gpt-4o llama4 kanana2 talkie minimax-m2": PreTokenizer((_cased(_ENGLISH + "?", r"\p{N}{1,3}"),)),
        "kimi-k2": PreTokenizer(
            (r"\p{Han}+|" + _cased(_ENGLISH + "?", r"\p{N}{1,3}", _not_han(_UPPER), _not_han(_LOWER), _REST),)
        ),
        "superbpe": PreTokenizer((r"\p{N}+", r"(?=(\d{3})+(?!\d))")),  # digits by threes, from the last on
        "granite-embed-multi-97m": PreTokenizer((_cased(_ENGLISH + "?", r"\p{N}{1,3}"),), ignore_merges=True),
        "tiny_aya cohere2moe": PreTokenizer((r"\d{1,3}(?=(?:\d{3})*\b)", _cased(_ENGLISH + "?", r"\p{N}{1,3}"))),
        "youtu": PreTokenizer(
            (
                "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|"
                + _CJK,
                _cased(_ENGLISH + "?", r"\p{N}"),
            ),
            ignore_merges=True,
        ),
        "deepseek-llm": PreTokenizer(
            (
                "[\r\n]",
                r"\s?" + _DEEPSEEK_LETTERS,
                r"\s?" + "[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
                r"\s+\z",
                _DEEPSEEK_CJK,
                r"\p{N}+",
            )
        ),
        "deepseek-coder": PreTokenizer(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}")),
        "deepseek-v3 hunyuan-dense joyai-llm hy_v4": PreTokenizer(
            (r"\p{N}{1,3}", _CJK, _SIGNED_WORDS + _DEEPSEEK_REST)
        ),
        "spark2_5": PreTokenizer(
            (r"\p{N}{1,3}", _CJK, _SIGNED_WORDS + r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+", r"\p{N}")
        ),
        "afmoe": PreTokenizer((r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", _ASIAN, _SIGNED_WORDS + _DEEPSEEK_REST)),
    }
)
