# Everything starts here: `make demo` runs the main job, `make test` checks the whole project.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OUT    ?= out/demo

# A CPU build of this version is at hand where softbench is developed; users' own torch may be any in pyproject's range.
TORCH  ?= torch==2.13.0

export HF_HUB_OFFLINE = 1
# Compiling every file of torch and transformers takes minutes; Python compiles what it imports.
export PIP_NO_COMPILE = 1
export SOFTBENCH_CACHE ?= $(CURDIR)/.cache
SOFTBENCH_DATA ?= $(abspath ../shared/data)
export SOFTBENCH_DATA

.PHONY: demo test lint types unit bench clean

demo: $(VENV)/.demo
	$(BIN)/softbench run --model "$$($(BIN)/python scripts/demo_model.py)" --tasks capitals --output-path $(OUT)

test: lint types unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

# The real models want all cores to themselves.
unit: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m "not real_model"
	$(BIN)/python -m pytest -m real_model

# softbench against PEFT and lm-evaluation-harness: about an hour on two cores.
bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.bench --model "$$($(BIN)/python scripts/demo_model.py)" --growth --out $(OUT)/bench.json

$(VENV)/.demo: pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet -e '.[demo]'
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet -e '.[demo,dev]'
	touch $@

clean:
	rm -rf $(VENV) .cache out
