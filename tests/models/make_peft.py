"""Makes the small adapters of `peft/` and the logits that PEFT gives with them: `python make_peft.py`.

Needs `torch==2.13.0`, `transformers` and `peft==0.21.2`; running the tests needs none of them. Every adapter is a
random one of a model in `folders/`, saved by PEFT itself. The model in float64 with the adapter beside its weights, not
merged, gives the logits of all tokens: `NAME.npz`. `llama_sum.npz` is of two adapters, added by PEFT with weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model

HERE = Path(__file__).parent
TOKENS = 17
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PATTERNS = {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"layers.1.self_attn.k_proj": 3, "k_proj": 9}}
# By name: the folder of the model, and what the adapter is configured with.
ADAPTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"r": 4, "lora_alpha": 6, "target_modules": PROJECTIONS, **PATTERNS}),
    "llama_second": ("llama", {"r": 3, "lora_alpha": 5, "use_rslora": True, "target_modules": ["q_proj", "down_proj"]}),
    "llama_ends": ("llama", {"r": 2, "target_modules": ["embed_tokens", "lm_head"]}),
    "gpt2": ("gpt2", {"r": 3, "fan_in_fan_out": True, "target_modules": ["c_attn", "c_proj", "c_fc", "wte"]}),
    "gpt_neox": ("gpt_neox", {"r": 2, "target_modules": ["query_key_value", "dense_4h_to_h"]}),
    "falcon": ("falcon_new", {"r": 2, "target_modules": ["query_key_value", "dense"]}),
}
SUM = {"llama": 0.5, "llama_second": 1.5}  # how much of which


def main() -> None:
    for name, (base, options) in ADAPTERS.items():
        torch.manual_seed(sum(name.encode()))
        config = LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **options)
        made = get_peft_model(_base(base).float(), config)
        made.peft_config["default"].base_model_name_or_path = base  # not a path of this machine
        made.save_pretrained(HERE / "peft" / name)
        _write(name, PeftModel.from_pretrained(_base(base), HERE / "peft" / name))
    summed: Any = None
    for name in SUM:
        if summed is None:
            summed = PeftModel.from_pretrained(_base("llama"), HERE / "peft" / name, adapter_name=name)
        else:
            summed.load_adapter(HERE / "peft" / name, adapter_name=name)
    summed.add_weighted_adapter(list(SUM), list(SUM.values()), "sum", combination_type="cat")
    summed.set_adapter("sum")
    _write("llama_sum", summed)


def _base(name: str) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(
        HERE / "folders" / name, dtype=torch.float64, attn_implementation="eager"
    )


def _write(name: str, model: Any) -> None:
    """The logits of some tokens; README.md, which PEFT writes, says nothing."""
    tokens = np.random.default_rng(3).integers(0, model.config.vocab_size, TOKENS)
    with torch.no_grad():
        logits = model.double().eval()(torch.tensor(tokens[None])).logits[0].numpy()
    np.savez_compressed(HERE / "peft" / f"{name}.npz", tokens=tokens.astype(np.int32), logits=logits.astype(np.float32))
    (HERE / "peft" / name / "README.md").unlink(missing_ok=True)
    print(name, logits.shape, float(np.ptp(logits)))


if __name__ == "__main__":
    main()
