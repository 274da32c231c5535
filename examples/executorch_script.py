"""A script written for `executorch.runtime`: only the import differs. Torch tensors in give torch tensors out."""

from pathlib import Path

import numpy as np

from hightide.executorch import Runtime  # was: from executorch.runtime import Runtime

PROGRAM = Path(__file__).parents[1] / "tests" / "conformance" / "llama_gqa.pte"

program = Runtime.get().load_program(PROGRAM)
print(f"methods: {sorted(program.method_names)}")
method = program.load_method("forward")
print(method.metadata)
outputs = method.execute([np.array([[5, 3, 9]]), np.array([0])])
print(f"logits of shape {list(outputs[0].shape)}")
