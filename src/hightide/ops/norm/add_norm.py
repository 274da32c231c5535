"""A residual added and normed at once; passes put it into graphs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from hightide.errors import InputError
from hightide.graph.values import Dims
from hightide.ops.contract import Context, Dispatch, Kernel, Op, Tensor, kernel, op, require_dtype
from hightide.ops.norm.rms import rms_normed
from hightide.ops.rows import row_lanes

INNER_SCALE = """for (var i = lane; i < params.width; i += LANES) { sum += h[start + i] * h[start + i]; }
    inner_partial[lane] = sum;
    workgroupBarrier();
    sum = $T();
    for (var i = 0u; i < LANES; i++) { sum += inner_partial[i]; }
    let inner_scale = 1.0 / sqrt($SUM * params.mean + params.inner_eps);
    sum = $T();"""


@op("hightide.add_norm.default")
class AddNorm(Op):
    """(x + h, rms_norm(x + h) * weight); with `inner`, h is first normed by it."""

    def outputs(
        self,
        ctx: Context,
        x: Tensor,
        h: Tensor,
        inner: Tensor | None,
        inner_eps: float,
        weight: Tensor,
        eps: float,
    ) -> list[Dims]:
        if not x.rank or x.dims != h.dims:
            raise InputError(f"a residual of {list(h.dims)} does not go with {list(x.dims)}")
        for given in (weight, inner):
            if given is not None and given.dims != x.dims[-1:]:
                raise InputError(f"rows of {x.width} do not match the norm's weight of {list(given.dims)}")
        return [x.dims, x.dims]

    def plan(
        self,
        ctx: Context,
        x: Tensor,
        h: Tensor,
        inner: Tensor | None,
        inner_eps: float,
        weight: Tensor,
        eps: float,
        *,
        out: tuple[Tensor, Tensor],
    ) -> Iterable[Dispatch]:
        given = () if inner is None else (inner,)
        require_dtype("f32", x, h, weight, *given, *out)
        if not x.numel:
            return
        step = 4 if x.width % 4 == 0 else 1
        yield Dispatch(
            _add_norm(step == 4, inner is not None, row_lanes(ctx)),
            groups=x.rows,
            params=(x.rows, x.width // step, 1.0 / x.width, float(inner_eps), float(eps)),
            reads=(x, h, weight, *given),
            writes=tuple(out),
        )

    def reference(
        self,
        x: np.ndarray,
        h: np.ndarray,
        inner: np.ndarray | None,
        inner_eps: float,
        weight: np.ndarray,
        eps: float,
    ) -> tuple[np.ndarray, np.ndarray]:
        total = x + (h if inner is None else rms_normed(h, inner, inner_eps))
        return total, rms_normed(total, weight, eps)


@cache
def _add_norm(vec4: bool, inner: bool, lanes: int) -> Kernel:
    element, total = ("vec4<f32>", "dot(sum, vec4<f32>(1.0))") if vec4 else ("f32", "sum")
    declared = f"@group(0) @binding(5) var<storage, read> inner: array<{element}>;"
    return kernel(
        "norm/add_norm.wgsl",
        ("add_norm_of_norm" if inner else "add_norm") + ("_vec4" if vec4 else ""),
        T=element,
        SUM=total,
        LANES=lanes,
        INNER=declared if inner else "// no norm of h",
        INNER_SCALE=INNER_SCALE.replace("$T", element).replace("$SUM", total) if inner else "",
        INNER_TIMES=" * inner_scale * inner[i]" if inner else "",
        OUT=6 if inner else 5,
        NORMED=7 if inner else 6,
    )
