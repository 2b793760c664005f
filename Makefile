# `make demo` and `make test` are all a new user needs; each makes the environment first.
# A GPU user picks another torch: `make demo TORCH=torch`.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-cpus test-wheel test-models test-programs test-cases test-ops test-torch test-gpus fuzz bench lint readme pictures format clean
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

bench: $(STAMP)
	$(BIN)/python tests/bench/commands.py
	$(BIN)/python tests/bench/epoch.py
	$(BIN)/python tests/bench/virtual.py
	$(BIN)/python tests/bench/weighting.py
	$(BIN)/python tests/bench/check.py
	$(BIN)/python tests/bench/ddp.py
	$(BIN)/python tests/bench/memory.py

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal

# The part of the suite that computes, with the kernels and threads of three other processors: minutes each.
test-cpus: $(STAMP)
	$(BIN)/python tests/cpus.py

# The wheel in an environment that has nothing but what it asks for, and the README's commands from an empty folder.
test-wheel: $(STAMP)
	$(BIN)/python tests/wheel.py

# Real architectures of the `transformers` library, and PyTorch's own samples of every operator: minutes each.
test-models: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[models]"
	$(BIN)/python -m pytest tests/architectures/transformers_models.py tests/architectures/transformers_checks.py

# Other libraries' training loops and models, each of which uses DataParallel: gigabytes to install, a minute to run.
test-programs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[programs]" "$(TORCH)"
	$(BIN)/python -m pytest tests/libraries/trainers.py tests/libraries/trainers_checked.py tests/libraries/frameworks.py tests/libraries/networks.py

# Each case of `check` with its printed repair put in, and in a program: `make test` takes every eighth, and every fourth.
test-cases: $(STAMP)
	ALL_CASES=1 $(BIN)/python -m pytest -n 2 --dist worksteal tests/executing/test_watching.py

test-ops: $(STAMP)
	$(BIN)/python tests/virtual/opinfo_sweep.py --samples 50

# On a machine with a GPU, which the suite hides: what runs on it, and what virtual ones are held against.
GPUS ?= 0
test-gpus: $(STAMP)
	CUDA_VISIBLE_DEVICES=$(GPUS) $(BIN)/python -m pytest -k "OnRealGPUs or real_gpus"
	CUDA_VISIBLE_DEVICES=$(GPUS) $(BIN)/python tests/memory/against_cuda.py
	CUDA_VISIBLE_DEVICES=$(GPUS) $(BIN)/python tests/memory/libraries_against_cuda.py
	CUDA_VISIBLE_DEVICES=$(GPUS) $(BIN)/python tests/virtual/cuda_sweep.py

# Random command lines, random DataParallel programs against chunks by hand, and Ctrl-C at random moments:
# FUZZ_SECONDS of each. Then the suite's properties, with other examples than it draws, and more of them.
FUZZ_SECONDS ?= 600
fuzz: $(STAMP)
	$(BIN)/python tests/fuzz/commandline.py --seconds $(FUZZ_SECONDS)
	$(BIN)/python tests/fuzz/dataparallel.py --seconds $(FUZZ_SECONDS)
	$(BIN)/python tests/fuzz/interrupts.py --seconds $(FUZZ_SECONDS)
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -n 2 --dist worksteal -m hypothesis

# The suite on another torch, in an environment of its own: `make test-torch TORCH=torch==2.15.0`.
test-torch:
	$(MAKE) test TORCH="$(TORCH)" VENV=".venv-$(subst /,_,$(subst =,_,$(TORCH)))"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

readme: $(STAMP)
	$(BIN)/python tests/readme.py
	$(BIN)/python tests/notebook.py

# The pictures of README and docs, made by the program itself.
pictures: $(STAMP)
	$(BIN)/python tests/pictures.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
