# `make demo` and `make test` create an environment, install and run; `make help` lists the rest.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2

BIN := $(VENV)/bin

.PHONY: help demo test lint types docs notebooks check dev format sync clean

help: ## this list
	@grep -E '^[a-z]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.installed ## synthesize traces of a simulated city; prints a table and where the pictures are
	$(BIN)/ppmtf demo --out demo

test: $(VENV)/.installed-test ## tests and docstring examples
	$(BIN)/python -m pytest -n $(WORKERS)

lint: $(VENV)/.installed-dev ## style of the code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev ## static types
	$(BIN)/basedpyright --pythonpath $(BIN)/python

docs: $(VENV)/.installed-docs ## documentation site in build/site; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

notebooks: $(VENV)/.installed-notebook ## pairs agree, and every notebook runs
	@set -e; for notebook in notebooks/*.ipynb; do \
	    $(BIN)/jupytext --quiet --to py:percent --output - $$notebook | diff -u $${notebook%.ipynb}.py - \
	        || { echo "$$notebook differs from its script: make sync"; exit 1; }; \
	done
	JAX_COMPILATION_CACHE_DIR=$(CURDIR)/.pytest_cache/d/jax-notebooks JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 \
	$(BIN)/python -m pytest -qq -n $(WORKERS) --dist worksteal --override-ini addopts= --override-ini filterwarnings= \
	    --nbmake notebooks

check: lint types docs notebooks test ## all of it

dev: $(VENV)/.installed-test $(VENV)/.installed-dev $(VENV)/.installed-docs $(VENV)/.installed-notebook ## all tools, for working on the code

format: $(VENV)/.installed-dev ## format, and repair what can be
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .

sync: $(VENV)/.installed-notebook ## bring notebooks up to date with their scripts, and the tables of docs/lists.md
	$(BIN)/jupytext --sync notebooks/*.py
	@$(BIN)/python -c "from pathlib import Path; from ppmtf_jax.cli.listing import markdown_tables; \
	    page = Path('docs/lists.md'); before, begin, rest = page.read_text('utf-8').partition('<!-- list -->'); \
	    tables = '\n\n' + markdown_tables() + '\n\n'; end = '<!-- /list -->'; \
	    page.write_text(before + begin + tables + end + rest.partition(end)[2], 'utf-8')"

clean: ## remove the environment and caches
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build/site

# The stamp, and not the folder, says that the environment is whole: a failed creation is tried again.
$(VENV)/.created:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV) || { echo 'Python needs its venv module; on Debian: apt install python3-venv'; exit 1; }
	touch $@

$(VENV)/.installed: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.installed-%: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch $@
