# Every target that runs Python first makes the environment, when it is missing or the lock changed.
VENV ?= .venv
ARGS ?=
WORKERS ?= auto

python = "$(VENV)/bin/python"
# the whole suite on all cores; tests that are named start sooner in one process
all_cores = -n $(WORKERS) --maxprocesses 8 --dist loadfile --no-loadscope-reorder --durations 10

define lint
$(python) -m ruff check --quiet
$(python) -m ruff format --check --quiet
$(python) -m mypy
endef

.PHONY: help environment train test test-fast lint bench ops torchtext lock clean

help:
	@echo 'make train   train, test and export (ARGS="--max_epochs 3" are its flags)'
	@echo 'make test    all tests, then lint (ARGS="tests/test_imports.py" go to pytest)'
	@echo 'make test-fast   only tests without exports, processes or real training, then lint'
	@echo 'make lint    style and types'
	@echo 'make bench   speed against bare Lightning and plain PyTorch'
	@echo 'make ops     compile the C++ operators ahead of their first use'
	@echo 'make torchtext ARGS=FILE   our tokens, ids and order against torchtext itself'
	@echo 'make lock    requirements.lock anew from pyproject.toml (needs uv)'
	@echo 'make clean   remove the environment and caches; runs/ stays'
	@echo 'VENV=folder places the environment, PYTHON=interpreter chooses its Python'

environment:
	@sh setup_environment.sh "$(VENV)"

train: environment
	@$(python) train.py $(ARGS)

test: environment
	@$(python) -m pytest $(if $(ARGS),$(ARGS),$(all_cores))
	@$(lint)

test-fast: environment
	@$(python) -m pytest $(all_cores) -m "not slow" $(ARGS)
	@$(lint)

lint: environment
	@$(lint)

bench: environment
	@$(python) -m benchmarks.training $(ARGS)

ops: environment
	@$(python) -m ops.library

# An environment of its own: torchtext 0.18 needs torch 2.3, which is for Python 3.8 to 3.12.
torchtext:
	@test -f "$(ARGS)" || { echo 'error: name a text file: make torchtext ARGS=FILE' >&2; exit 2; }
	@test -d .venv-torchtext || $${PYTHON:-python3} -m venv .venv-torchtext
	@.venv-torchtext/bin/python -m pip install --quiet -r benchmarks/torchtext_requirements.txt
	@.venv-torchtext/bin/python -m benchmarks.torchtext_parity "$(ARGS)"

lock:
	@command -v uv >/dev/null || { echo 'error: uv is not installed: pip install uv' >&2; exit 1; }
	@uv pip compile --quiet --universal --generate-hashes --no-annotate --no-header \
	    --all-extras pyproject.toml -o requirements.lock $(ARGS)

clean:
	@test ! -e "$(VENV)/pyvenv.cfg" || rm -rf "$(VENV)"
	@rm -rf .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -not -path './.*' -prune -exec rm -rf {} +
