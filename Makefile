# `make demo` and `make test` are all a new user needs; each makes the environment first.
# A GPU user picks another torch: `make demo TORCH=torch`. CONTRIBUTING.md lists the programs under tests/tools.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV ?= .venv
BIN := $(VENV)/bin
# Test processes share the cores: more than one thread in each only waits for the others
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

.PHONY: demo test test-all test-gpus bench lint docs clean
.DEFAULT_GOAL := demo

# The stamp's name carries the torch asked for, so that another TORCH installs again.
STAMP := $(VENV)/.installed-$(subst /,_,$(subst =,_,$(TORCH)))

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	rm -f $(VENV)/.installed-*
	touch "$@"

demo: $(STAMP)
	$(BIN)/dpdemo run --virtual --gpus 0,1,2

# The fast part of the suite: every test that is not marked `slow`.
test: $(STAMP)
	$(PYTEST)

test-all: $(STAMP)
	$(PYTEST) -m ""

# On a machine with a GPU, which the suite hides: tests that run on it, and comparisons of virtual GPUs with it.
GPUS ?= 0
test-gpus: $(STAMP)
	CUDA_VISIBLE_DEVICES=$(GPUS) $(BIN)/python -m pytest -m "" -k "OnRealGPUs or real_gpus"
	for program in steps_on_card memory_against_cuda cuda_sweep; do \
		CUDA_VISIBLE_DEVICES=$(GPUS) $(BIN)/python tests/gpus/$$program.py || exit; done

# The figures of the docs for speed and memory: minutes each.
bench: $(STAMP)
	for program in commands epoch virtual check ranks memory; do \
		$(BIN)/python tests/tools/bench/$$program.py || exit; done

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Renew what README and docs show: output of commands, the notebook and the picture.
docs: $(STAMP)
	for program in readme notebook movie; do $(BIN)/python tests/tools/$$program.py || exit; done

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
