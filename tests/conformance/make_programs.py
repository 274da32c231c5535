"""Makes small `.pte` programs with the real ExecuTorch exporter, and the answers they must give.

    pip install torch==2.13.0 executorch==1.5.1
    python tests/conformance/make_programs.py [--check] [name...]

Each program is `<name>.pte`, plus `<name>.npz`: a schedule of steps to run on one session, in order,
with the state carried from step to step. Step i has `i.in0`, `i.in1`... and `i.out0`, `i.out1`...;
`programs.json` names the method of each step.

LLAMAS go through `executorch.examples.models.llama`, with the switches of its command line and
weights from a seed. Their goldens come from the model that the exporter itself traces, after its source
transforms and quantisation: `builder.model`, run eagerly in float32, its KV caches kept across steps.
So a weight there is the float32 value of its 4-bit integer times its scale, as in the program.
MODULES, MODELS, MULTIMODAL and XNN_MODULES (see the files of these names) are torch modules through
`VulkanPartitioner`, the last through `XnnpackPartitioner`; their goldens are the eager module's, its buffers kept
across steps. One with `int8` is quantised through PT2E first, one with `int4` by torchao, and its golden is the
quantised module's. Vulkan's leaves convolutions of a batch other than 1 outside: `any_batch` lifts that.

`--check` also exports each program without a delegate (a Llama: from its weights dequantised to float32; one for
XNNPACK stays as it is), runs it on ExecuTorch's own CPU runtime, and writes the largest difference, relative to the
output's largest value, to `programs.json`. Not for 8da4w (its activations are quantised too), int8 and fp16 Llamas.

What the exporter cannot do: S = max_seq_length (the largest S is one less); a static S other than 1;
`-d fp16` (its Vulkan path asserts fp32; `--vulkan-force-fp16` is the way, and keeps the program's output in
fp32); `-kv` without its sdpa op (memory planning asserts), `--quantize_kv_cache` (data-dependent shape) and
`--use_attention_sink` (IndexError) with Vulkan. A `sort` has no portable kernel, so `partial` has a `topk`.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import tempfile
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from models import MODELS
from modules import MODULES, Module
from multimodal import MULTIMODAL
from xnn_modules import XNN_MODULES

HERE = Path(__file__).parent
Step = tuple[str, tuple[np.ndarray, ...]]  # method, inputs
Weights = dict[str, torch.Tensor]

KV, Q4 = "-kv --use_sdpa_with_kv_cache", "-qmode 4w -G 32 -E 4,32"
BASE = dict(dim=64, n_layers=2, n_heads=4, n_kv_heads=2, hidden_dim=160, vocab_size=160, max_seq=48, context=96)
MHA_ODD = dict(dim=36, n_heads=3, n_kv_heads=3, hidden_dim=92, vocab_size=101, max_seq=40, context=75)

# name: (switches of the exporter, what differs from BASE)
LLAMAS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama_gqa": (f"{KV} {Q4}", {}),
    "llama_mqa": (f"{KV} {Q4}", dict(n_kv_heads=1, max_seq=64, context=64)),
    "qwen2": (f"{KV} {Q4}", dict(attention_qkv_bias=True, use_hf_rope=True, hidden_dim=96, tied=True)),
    "qwen3": (
        f"{KV} {Q4}",
        dict(dim=96, head_dim=32, use_qk_norm=True, qk_norm_before_rope=True, use_hf_rope=True, tied=True),
    ),
    "smollm2": (
        f"{KV} {Q4}",
        dict(dim=96, n_heads=9, n_kv_heads=3, head_dim=32, use_hf_rope=True, vocab_size=136, n_layers=1, tied=True),
    ),
    "llama_fp32": (KV, MHA_ODD),
    "llama_g64": (f"{KV} -qmode 4w -G 64 -E 4,64", dict(dim=128, n_heads=8, hidden_dim=192, n_layers=1)),
    "llama_static": (f"{KV} {Q4} --disable_dynamic_shape", dict(max_seq=2, context=20)),
    "llama_nokv": (Q4, dict(max_seq=48, context=48)),
    "llama_fp16": (f"{KV} {Q4} --vulkan-force-fp16", {}),
    "llama_8da4w": (f"{KV} -qmode 8da4w -G 32 -E 4,32", {}),
    "llama_all_logits": (f"{KV} {Q4} --generate_full_logits", dict(vocab_size=96)),
    "llama_chunks": (f"{KV} {Q4}", dict(max_seq=16, context=112, n_layers=1)),
    "llama_e8": (f"{KV} -qmode 4w -G 32 -E 8,32", {}),  # the embedding stays outside the delegate
    "llama_int8": (f"{KV} -qmode int8", dict(MHA_ODD, n_layers=1)),  # weights are inputs of the delegate
    "llama_half_rope": (f"{KV} {Q4}", dict(partial_rotary_factor=0.5, use_hf_rope=True, n_layers=1)),
    "gemma_norms": (  # norm weights are 1 + w, added in the graph; norms after attention and feed-forward too
        f"{KV} {Q4}",
        dict(rms_norm_add_unit_offset=True, post_attention_norm=True, post_ffn_norm=True, use_qk_norm=True, n_layers=1),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    index = HERE / "programs.json"
    for name in args.names or [*LLAMAS, *MODULES, *MODELS, *MULTIMODAL, *XNN_MODULES]:
        entry = (make_llama if name in LLAMAS else make_module)(name, args.check)
        programs = json.loads(index.read_text()) if index.exists() else {}
        programs[name] = {**entry, "torch": version("torch"), "executorch": version("executorch")}
        print(name, (HERE / f"{name}.pte").stat().st_size, programs[name].get("checked"), flush=True)
        lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in sorted(programs.items())]
        index.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def make_llama(name: str, check: bool) -> dict[str, Any]:
    switches, changes = LLAMAS[name]
    params = {**BASE, "norm_eps": 1e-5, **changes}
    max_seq, context = params.pop("max_seq"), params.pop("context")
    tied = params.pop("tied", False)
    max_s = 1 if "--disable_dynamic_shape" in switches else max_seq - 1
    switches += f" --max_seq_length {max_seq} --max_context_length {context}"

    model = export_llama(f"-V {switches}", params, llama_weights(params, tied), HERE / f"{name}.pte")
    if "force-fp16" in switches:  # the program's constants are rounded; what is computed from them is compared in fp32
        model = copy.deepcopy(model).half().float()
    steps = llama_steps(max_s, context, params["vocab_size"], kv_cache="-kv" in switches)
    with torch.no_grad():
        goldens = [
            [model(tokens, {"input_pos": pos[0]} if pos else None)]
            for tokens, *pos in (map(torch.from_numpy, inputs) for _, inputs in steps)
        ]
    entry = save(name, steps, goldens)
    entry |= dict(switches=switches, params=params, tied=tied, max_s=max_s, context=context, vocab=params["vocab_size"])
    if check and not re.search("8da4w|int8|fp16", switches):
        with tempfile.TemporaryDirectory() as tmp:
            export_llama(re.sub("-(qmode|G|E) \\S+", "", switches), params, dense_weights(model), Path(tmp, "cpu.pte"))
            entry["checked"] = check_on_cpu(Path(tmp, "cpu.pte"), steps, goldens)
    return entry


def export_llama(switches: str, params: dict[str, Any], weights: Weights, path: Path) -> torch.nn.Module:
    """Writes the program; returns the eager model that it was traced from, with empty KV caches."""
    from executorch.examples.models.llama import export_llama_lib as exporter
    from executorch.extension.llm.export.config.llm_config import LlmConfig

    with tempfile.TemporaryDirectory() as tmp:
        torch.save(weights, f"{tmp}/weights.pth")
        Path(tmp, "params.json").write_text(json.dumps(params))
        files = f"-c {tmp}/weights.pth --params {tmp}/params.json --output_name {path}"
        args = exporter.build_args_parser().parse_args(f"--model stories110m -d fp32 {files} {switches}".split())
        return exporter._export_llama(LlmConfig.from_args(args)).model


def llama_weights(params: dict[str, Any], tied: bool) -> Weights:
    """Of the size that keeps activations near 1, so that an error anywhere shows in the logits."""
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    with torch.device("meta"):
        model = construct_transformer(ModelArgs(**params))
    # Buffers that are part of a checkpoint have no device yet either.
    loaded = [*model.named_parameters(), *((name, b) for name, b in model.named_buffers() if b.is_meta)]
    shapes = {name: w.shape for name, w in loaded if name in model.state_dict()}
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(shape, generator=generator) for name, shape in sorted(shapes.items())}
    for name, w in weights.items():
        if "norm" in name:
            w.mul_(0.1).add_(1)
        elif name.endswith("bias"):
            w.mul_(0.3)
        elif not name.startswith("tok_embeddings"):
            w.mul_(w.shape[-1] ** -0.5)
    if tied:  # as the exporter's converters of tied checkpoints do: one tensor under both names
        weights["output.weight"] = weights["tok_embeddings.weight"]
    return weights


def dense_weights(model: torch.nn.Module) -> Weights:
    """What the quantised model computes with, as a float32 checkpoint."""
    from torchao.utils import TorchAOBaseTensor

    weights = {name: w.dequantize() if isinstance(w, TorchAOBaseTensor) else w for name, w in model.named_parameters()}
    weights["tok_embeddings.weight"] = model.tok_embeddings(torch.arange(model.vocab_size))
    return {name: w.detach().clone() for name, w in weights.items()}


def llama_steps(max_s: int, context: int, vocab: int, kv_cache: bool) -> list[Step]:
    """Prefill, decode, chunks at pos > 0, restarts, rewinds, S = 1, odd and max, up to the last position."""
    rng = np.random.default_rng(0)
    if not kv_cache:
        return [
            ("forward", (rng.integers(0, vocab, (1, s)),)) for s in (7, 1, max_s, 2, 13, 1, min(31, max_s), max_s, 3)
        ]
    sizes = [(0, 7), (None, 1), (None, 1), (None, 13), (None, 1), (0, max_s), (None, 1), (None, 2), (None, 13)]
    fill, pos = [(None, max_s)] * context, 0
    sizes += [*fill, (context - 1, 1), (context - max_s, max_s), (0, 1), (None, max_s), (5, 3), (None, 1)]
    steps: list[Step] = []
    for at, s in sizes:  # at None: go on from the last position
        pos = pos if at is None else min(at, context - 1)
        s = min(s, max_s, context - pos)
        if s:
            steps.append(("forward", (rng.integers(0, vocab, (1, s)), np.array([pos]))))
        pos += s
    return steps


def make_module(name: str, check: bool) -> dict[str, Any]:
    case = {**MODULES, **MODELS, **MULTIMODAL, **XNN_MODULES}[name]
    torch.manual_seed(0)
    module = case.make().eval().requires_grad_(False)
    if case.int8:
        module = quantized(module, case)
    if case.int4:
        quantize_linears(module)
    eager = copy.deepcopy(module)
    lower_module(module, case, HERE / f"{name}.pte", delegate=case.delegate)
    with torch.no_grad():
        goldens = []
        for method, inputs in case.steps():
            outputs = getattr(eager, method)(*map(torch.from_numpy, inputs))
            goldens.append([x.clone() for x in (outputs if isinstance(outputs, tuple) else (outputs,))])
    entry = save(name, case.steps(), goldens) | dict(about=case.make.__doc__)
    if check and case.backend == "xnnpack":
        entry["checked"] = check_on_cpu(HERE / f"{name}.pte", case.steps(), goldens)
    elif check:
        with tempfile.TemporaryDirectory() as tmp:
            lower_module(module, case, Path(tmp, "cpu.pte"), delegate=False)
            entry["checked"] = check_on_cpu(Path(tmp, "cpu.pte"), case.steps(), goldens)
    return entry


def quantized(module: torch.nn.Module, case: Module) -> torch.nn.Module:
    """The module in 8 bits, weights per channel, its activations' ranges taken from the schedule's first inputs."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import get_symmetric_quantization_config as symmetric
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    inputs, dynamic_shapes = case.methods["forward"]
    traced = torch.export.export(module, inputs(), dynamic_shapes=dynamic_shapes, strict=False).module()
    prepared = prepare_pt2e(traced, XNNPACKQuantizer().set_global(symmetric(is_per_channel=True)))
    for _, given in case.steps()[:3]:
        prepared(*map(torch.from_numpy, given))
    return convert_pt2e(prepared)


def quantize_linears(module: torch.nn.Module) -> None:
    """4-bit weights in groups of 32, with scales that are exact in bfloat16: XNNPACK's are."""
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup
    from torchao.utils import unwrap_tensor_subclass

    quantize_(module, Int8DynamicActivationIntxWeightConfig(torch.int4, PerGroup(32)))
    for weight in module.parameters():
        if hasattr(weight, "scale"):
            weight.scale = weight.scale.bfloat16().float()
    unwrap_tensor_subclass(module)


def lower_module(module: torch.nn.Module, case: Module, path: Path, delegate: bool) -> None:
    from executorch.backends.vulkan.op_registry import vulkan_supported_ops
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.dialects._ops import ops as exir_ops
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
    from executorch.extension.llm.export.export_passes import RemoveRedundantTransposes

    refuse = [attrgetter(op)(exir_ops.edge) for op in case.refuse]
    convolution = vulkan_supported_ops[exir_ops.edge.aten.convolution.default]
    limited = convolution.are_node_inputs_supported_fn
    if case.any_batch:
        convolution.are_node_inputs_supported_fn = lambda node: True
    vulkan = VulkanPartitioner({"require_dynamic_shapes": case.resize}, operator_blocklist=refuse)
    partitioner = XnnpackPartitioner() if case.backend == "xnnpack" else vulkan
    methods = {}
    for method, (inputs, dynamic_shapes) in case.methods.items():
        forward, module.forward = module.forward, getattr(module, method)  # torch.export takes `forward`
        methods[method] = torch.export.export(module, inputs(), dynamic_shapes=dynamic_shapes, strict=False)
        module.forward = forward
        if case.untransposed:
            graph = RemoveRedundantTransposes()(methods[method].module())[0]
            methods[method] = torch.export.export(graph, inputs(), dynamic_shapes=dynamic_shapes, strict=False)
    edge = to_edge_transform_and_lower(
        methods,
        partitioner=[partitioner] if delegate else None,
        constant_methods=case.constants or None,
        compile_config=EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True),
    )
    convolution.are_node_inputs_supported_fn = limited
    passes = [InitializedMutableBufferPass(list(case.first_values))] if case.first_values else []
    with path.open("wb") as file:
        edge.to_executorch(ExecutorchBackendConfig(passes=passes)).write_to_file(file)


def save(name: str, steps: list[Step], goldens: list[list[torch.Tensor]]) -> dict[str, Any]:
    arrays = {f"{i}.in{j}": x for i, (_, inputs) in enumerate(steps) for j, x in enumerate(inputs)}
    arrays |= {f"{i}.out{j}": x.numpy() for i, outputs in enumerate(goldens) for j, x in enumerate(outputs)}
    np.savez_compressed(HERE / f"{name}.npz", **arrays)
    return {"steps": [method for method, _ in steps]}


def check_on_cpu(path: Path, steps: list[Step], goldens: list[list[torch.Tensor]]) -> float:
    import executorch.extension.llm.custom_ops.custom_ops
    import executorch.kernels.quantized  # noqa: F401
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(path)
    loaded = {method: program.load_method(method) for method in {method for method, _ in steps}}
    worst = 0.0
    for (method, inputs), golden in zip(steps, goldens, strict=True):
        outputs = loaded[method].execute([torch.from_numpy(x) for x in inputs])
        for got, want in zip(outputs, golden, strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, want.shape)
            difference = (got.double() - want.double()).abs().max() / want.double().abs().max().clamp(min=1e-9)
            worst = max(worst, difference.item())
    return worst


if __name__ == "__main__":
    main()
