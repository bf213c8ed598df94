# `make demo` and `make test` create an environment, install and run; `make help` lists the rest.
# They install the versions of constraints.txt, which were tested. `make test LATEST=1` takes the newest that
# pyproject.toml allows, in an environment of its own.

PYTHON ?= python3
LATEST ?=
CHECK ?=
VENV ?= $(if $(LATEST),.venv-latest,.venv)
WORKERS ?= 2
DEMO ?= demo

BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check \
    $(if $(LATEST),--upgrade --upgrade-strategy eager,--constraint constraints.txt)
# What a new version of a dependency is likely to break, in a minute.
CORE := tests/test_errors.py tests/test_layout.py tests/test_settings.py tests/test_streams.py tests/data \
    tests/datasets/test_tables.py tests/datasets/test_times.py tests/exports tests/gibbs/test_kernel.py \
    tests/gibbs/test_tensors.py tests/noise tests/privacy/test_plausible_users.py tests/runtime/test_files.py \
    tests/synthesizers/test_sgd_and_uniform.py tests/trace_models/test_likelihoods.py \
    tests/trace_models/test_metropolis_hastings.py

.PHONY: help demo test core lint types docs notebooks check dev format sync lock clean

help: ## this list
	@grep -E '^[a-z]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.installed ## synthesize traces of a simulated city; prints a table and where the pictures are
	$(BIN)/ppmtf demo --out $(DEMO)

test: $(VENV)/.installed-test ## tests and docstring examples
	$(BIN)/python -m pytest -n $(WORKERS)

core: $(VENV)/.installed-test ## a fast part of the tests, for other versions: make core LATEST=1 PYTHON=python3.13
	$(BIN)/python -m pytest -n $(WORKERS) $(CORE)

lint: $(VENV)/.installed-dev ## style of the code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev ## static types
	$(BIN)/basedpyright --pythonpath $(BIN)/python

docs: $(VENV)/.installed-docs ## documentation site in build/site; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

notebooks: $(VENV)/.installed-notebook ## run all notebooks, store what they show; CHECK=1: fail if it is out of date
	JAX_COMPILATION_CACHE_DIR=$(CURDIR)/.pytest_cache/d/jax-notebooks JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 \
	$(BIN)/python docs/notebooks.py --workers $(WORKERS) $(if $(CHECK),--check)

check: lint types docs notebooks test ## all of it

dev: $(VENV)/.installed-all ## all tools, for working on the code

format: $(VENV)/.installed-dev ## format, and repair what can be
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .

sync: $(VENV)/.installed-notebook ## bring notebooks up to date with their scripts
	$(BIN)/jupytext --sync notebooks/*.py

# Without the extra cuda, whose packages come with one version of jaxlib.
lock: $(VENV)/.installed-dev ## write the newest versions that pyproject.toml allows, for all Pythons, to constraints.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --no-annotate \
	    $(foreach extra,cluster interop test dev docs notebook,--extra $(extra)) \
	    --custom-compile-command "make lock" --output-file constraints.txt pyproject.toml

clean: ## remove the environments and caches
	rm -rf .venv .venv-latest .pytest_cache .ruff_cache .hypothesis build/site

# The stamp, and not the folder, says that the environment is whole: a failed creation is tried again.
$(VENV)/.created:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV) || { echo 'Python needs its venv module; on Debian: apt install python3-venv'; exit 1; }
	touch $@

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/.created
	$(INSTALL) --editable .
	touch $@

$(VENV)/.installed-all: pyproject.toml constraints.txt | $(VENV)/.created
	$(INSTALL) --editable '.[test,dev,docs,notebook]'
	touch $(VENV)/.installed $(foreach extra,test dev docs notebook,$(VENV)/.installed-$(extra)) $@

$(VENV)/.installed-%: pyproject.toml constraints.txt | $(VENV)/.created
	$(INSTALL) --editable '.[$*]'
	touch $@
