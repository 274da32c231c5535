"""Look at what a call would do: the ops, routes, live dims, workgroups and bytes of its plan. Nothing runs."""

from pathlib import Path

import hightide

PROGRAM = Path(__file__).parents[1] / "tests" / "conformance" / "llama_gqa.pte"

with hightide.load(PROGRAM) as program:
    forward = program.method("forward")
    prompt = forward.explain(tokens=[[1, 2, 3, 4, 5, 6, 7]], input_pos=[0])
    decode = forward.explain(tokens=[[8]], input_pos=[7])
    print(decode)
    for name, plan in (("a prompt of 7 tokens", prompt), ("one token", decode)):
        routes = {row.route for row in plan.rows if "linear" in row.name}  # those of norms within linears too
        print(f"{name}: {plan.dispatches} dispatches, {plan.cost.flops} FLOPs, linears by {', '.join(sorted(routes))}")
