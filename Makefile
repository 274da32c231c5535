# `make demo` and `make test` set up everything they need: a virtual environment, the package, and a
# software WebGPU adapter where the machine has no GPU.
VENV ?= .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready

.PHONY: demo test test-unit test-all test-exports test-browser test-swiftshader fuzz soak load bench bench-peers docs lint format clean

demo: $(READY)
	$(PYTHON) scripts/demo.py

test: $(READY) lint
	$(PYTHON) -m pytest -n 2 --dist loadgroup

# What needs no adapter, in under a minute.
test-unit: $(READY)
	$(PYTHON) -m pytest -n 2 -m "not slow and not gpu" tests/unit

test-all: $(READY) lint
	scripts/ensure-chromium.sh >/dev/null
	$(PYTHON) -c 'import ray.serve, langchain_openai, vulkan' 2>/dev/null || $(PYTHON) -m pip install --quiet -e '.[ray,clients,kernels]' || true
	$(PYTHON) -m pytest -n 2 --dist loadgroup -m "slow or not slow" --durations 30

# What the real exporter makes of whole models, of ExecuTorch's dynamic-shape tests and of torch's op database: about
# 2 GB of wheels. TABLE=docs/exports.md also writes the page about the models.
MODEL_EXPORTS := build/model-exports
test-exports: $(READY)
	$(PYTHON) -c 'import executorch, expecttest, safetensors' 2>/dev/null || \
	    $(PYTHON) -m pip install --quiet -e '.[export]' expecttest safetensors
	$(PYTHON) tests/conformance/model_exports.py $(MODEL_EXPORTS)
	HIGHTIDE_MODEL_EXPORTS=$(MODEL_EXPORTS) $(PYTHON) -m pytest -m "slow or not slow" \
	    tests/conformance/test_model_exports.py tests/conformance/test_executorch_exports.py \
	    tests/conformance/test_op_samples.py
	$(if $(TABLE),$(PYTHON) tests/conformance/export_table.py $(MODEL_EXPORTS) $(TABLE))

# The pages and the engine of `hightide web` in a real Chromium, on whatever WebGPU adapter it has; plans with halves on
# Mesa's lavapipe, if there is a C compiler for the driver by which Chromium takes it.
test-browser: $(READY)
	scripts/ensure-chromium.sh >/dev/null
	$(PYTHON) -m pytest -m "slow or not slow" tests/browser

# The tests of the GPU on a second driver that shares no code with Mesa's.
test-swiftshader: $(READY)
	driver=$$(scripts/ensure-swiftshader.sh) && \
	    VK_DRIVER_FILES=$$driver $(PYTHON) -m pytest -n 2 tests/gpu tests/conformance tests/models

# Everything that a process may do, for ten minutes, checked all along; SOAK='--minutes 60' or SOAK='--steps 100000'.
soak: $(READY)
	PYTHONPATH=tests $(PYTHON) -m soak $(SOAK)

# 64 clients of one server, good and bad, for ten minutes, while its worker is killed every minute.
load: $(READY)
	PYTHONPATH=tests $(PYTHON) -m load $(LOAD)

# Damaged files of every kind; `make fuzz FUZZ="--cases 100000 --seed 1"`. What fails is kept in tests/fuzz/found.
fuzz: $(READY)
	PYTHONPATH=tests $(PYTHON) -m fuzz $(FUZZ)

# Beside the peers that are installed; `make bench BENCH=--quick` takes a few minutes, all of it up to fifteen.
bench: $(READY)
	$(PYTHON) -c 'import matplotlib' 2>/dev/null || $(PYTHON) -m pip install --quiet 'matplotlib>=3.8' || true
	$(PYTHON) benchmarks/compare.py --kernels --out benchmarks/results $(BENCH)
	$(PYTHON) benchmarks/update_docs.py
	$(PYTHON) benchmarks/step.py
	$(PYTHON) benchmarks/many.py --peers
	$(PYTHON) benchmarks/server.py --peers
	$(PYTHON) benchmarks/masks.py
	$(PYTHON) benchmarks/web.py

# Other engines, each into a folder of its own in the cache: about 2 GB.
bench-peers: $(READY)
	$(PYTHON) benchmarks/compare.py --setup all

# The site, into build/site; every warning is an error. Needs no network once the `docs` extra is installed.
docs: $(READY)
	$(PYTHON) -c 'import mkdocs, material, mkdocstrings' 2>/dev/null || $(PYTHON) -m pip install --quiet -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet

lint: $(READY)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(VENV)/bin/lint-imports --no-cache >/dev/null || $(VENV)/bin/lint-imports --no-cache

format: $(READY)
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

$(READY): pyproject.toml scripts/setup.sh scripts/ensure-adapter.sh
	scripts/setup.sh $(VENV)
	scripts/ensure-adapter.sh $(PYTHON)
	touch $@

clean:
	rm -rf $(VENV) build dist
