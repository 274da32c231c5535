# `make demo` and `make test` set up everything they need: a virtual environment, the package, and a
# software WebGPU adapter where the machine has no GPU.
VENV ?= .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready

.PHONY: demo test test-all bench lint format clean

demo: $(READY)
	$(PYTHON) scripts/demo.py

test: $(READY) lint
	$(PYTHON) -m pytest -n 2

test-all: $(READY) lint
	$(PYTHON) -m pytest -n 2 -m "slow or not slow"

bench: $(READY)
	$(PYTHON) benchmarks/step.py

lint: $(READY)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

format: $(READY)
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

$(READY): pyproject.toml scripts/setup.sh scripts/ensure-adapter.sh
	scripts/setup.sh $(VENV)
	scripts/ensure-adapter.sh $(PYTHON)
	touch $@

clean:
	rm -rf $(VENV) build dist
