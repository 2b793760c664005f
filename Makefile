# `make demo` and `make test` are all a new user needs; each makes the environment first.
# A GPU user picks another torch: `make demo TORCH=torch`.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-models test-ops test-torch bench lint readme format clean
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
	$(BIN)/python tests/bench/virtual.py
	$(BIN)/python tests/bench/check.py
	$(BIN)/python tests/bench/ddp.py
	$(BIN)/python tests/bench/memory.py

test: $(STAMP)
	$(BIN)/python -m pytest -n 2

# Real architectures of the `transformers` library, and PyTorch's own samples of every operator: minutes each.
test-models: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[models]"
	$(BIN)/python -m pytest tests/architectures/transformers_models.py tests/architectures/transformers_checks.py

test-ops: $(STAMP)
	$(BIN)/python tests/virtual/opinfo_sweep.py --samples 50

# The suite on another torch, in an environment of its own: `make test-torch TORCH=torch==2.15.0`.
test-torch:
	$(MAKE) test TORCH="$(TORCH)" VENV=".venv-$(subst /,_,$(subst =,_,$(TORCH)))"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

readme: $(STAMP)
	$(BIN)/python tests/readme.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
