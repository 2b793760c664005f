# `make demo` is all that a new user needs; `make test` installs the rest. Both make .venv first.
# CONTRIBUTING.md lists the programs under tests/tools.
PYTHON ?= python3
TORCH ?= torch==2.13.0
# PyTorch's CPU build, since on Linux PyPI's own brings gigabytes of CUDA; an empty TORCH_INDEX takes PyPI's.
# Only torch comes from there, and where it cannot be reached from pip's own index.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
VENV ?= .venv
BIN := $(VENV)/bin
# What is not imported needs no bytecode, and the rest is compiled when it is imported first
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile
# Test processes share the cores: more than one thread in each only waits for the others
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

.PHONY: demo test test-all test-gpus bench lint docs clean
.DEFAULT_GOAL := demo

# The names of the stamps carry the torch asked for, so that another TORCH installs again.
ASKED := $(subst /,_,$(subst =,_,$(TORCH)))
RUNS := $(VENV)/.runs-$(ASKED)
STAMP := $(VENV)/.installed-$(ASKED)

$(RUNS): pyproject.toml
	@echo "Installing into $(VENV): $(TORCH) ($(if $(TORCH_INDEX),CPU build; for GPUs: make VENV=.venv-gpu TORCH_INDEX=,PyPI's build)), Typer, Rich, ruamel.yaml"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) $(if $(TORCH_INDEX),--retries 1 --no-deps --extra-index-url $(TORCH_INDEX)) "$(TORCH)"
	@$(PIP) --editable .
	@$(BIN)/python -c "from importlib.metadata import version; print('Installed torch', version('torch'))"
	@rm -f $(VENV)/.runs-* $(VENV)/.installed-*
	@touch "$@"

$(STAMP): $(RUNS)
	@echo "Installing what tests need into $(VENV): pytest, ruff, mypy and others of [dev] in pyproject.toml"
	@$(PIP) --editable ".[dev]"
	@touch "$@"

demo: $(RUNS)
	@echo "Running PyTorch's DataParallel tutorial on three GPUs that this CPU emulates: dpdemo run --virtual --gpus 3"
	@echo
	@$(BIN)/dpdemo run --virtual --gpus 3
	@echo
	@echo "Next, a program for torchrun on two ranks: $(BIN)/dpdemo exec --ranks 2 -m dpdemo.examples.ddp"

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
