# `make help` lists what there is. Each target sets up what it needs in .venv.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Given TORCH=1, torch is installed too; where it is already, demo and tests use it anyway.
TORCH ?=
TORCH_STAMP := $(if $(filter-out 0 no,$(TORCH)),$(VENV)/.stamp-torch)
# Given ORACLE=1, HTA is installed too, with which torch's traces are compared.
ORACLE ?=
ORACLE_STAMP := $(if $(filter-out 0 no,$(ORACLE)),$(VENV)/.stamp-oracle)
# Given JUPYTER=1, JupyterLab and Dask's extension are installed too, in which notebooks are tried.
JUPYTER ?=
JUPYTER_STAMP := $(if $(filter-out 0 no,$(JUPYTER)),$(VENV)/.stamp-jupyter)
# Given DEPLOY=1, what starts Dask by SSH, SLURM, MPI and so on is installed too.
DEPLOY ?=
DEPLOY_STAMP := $(if $(filter-out 0 no,$(DEPLOY)),$(VENV)/.stamp-deploy)
# Which of benchmarks/ to run; benchmarks/README.md lists them.
BENCH ?= overhead
# What an installation compiles, and how; so a change of it installs again.
COMPILED := hatch_build.py $(addprefix dask_efficiency/gpu/cupti/,callbacks.c build.py)
# Which tests `make pytest` runs, as of pytest's -m.
WHICH ?= not slow
MATRIX_PYTHONS ?= 3.11 3.12 3.13 3.14
MATRIX_DISTRIBUTED ?= 2026.1.0 newest

# Where it is set, each of hundreds of processes would compile the package for itself.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

.PHONY: demo
demo: $(VENV)/.stamp-demo $(TORCH_STAMP) ## A workload of 10 to 20 seconds and its report (TORCH=1: with inference)
	@$(BIN)/dask-efficiency demo

.PHONY: test
test: setup ## Linters, all pure tests and some 60 on clusters: what a change of any part needs
	@$(MAKE) --no-print-directory --jobs 2 --keep-going lint pytest

.PHONY: test-all
test-all: test ## And what is beyond it: all tests on clusters, in a browser, with Prometheus, MPI and torch
	@$(MAKE) --no-print-directory pytest WHICH=slow

.PHONY: nightly
nightly: test-all without journeys test-matrix fuzz ## And without each wing, journeys, other versions, new examples, chaos: a night
	@$(MAKE) --no-print-directory pytest WHICH='not cluster and not slow' PYTEST_ARGS=--hypothesis-profile=nightly
	@$(BIN)/python -m benchmarks.chaos --seed $$(date +%Y%m%d)

# Kilobytes of memory for each process: what a damaged file may not exceed.
FUZZ_MEMORY ?= 6000000

.PHONY: fuzz
fuzz: setup ## What each reader and handler does with damage, thousands of new examples, with memory limited: an hour
	@ulimit -v $(FUZZ_MEMORY) && $(BIN)/python -m pytest -n 2 --timeout 0 --hypothesis-profile=fuzz $(PYTEST_ARGS) \
		tests/test_damage.py tests/accounts/test_intake.py tests/plugin/worker/test_odd_inputs.py

.PHONY: setup
setup: $(VENV)/.stamp-test $(TORCH_STAMP) $(ORACLE_STAMP) $(JUPYTER_STAMP) $(DEPLOY_STAMP) ## Only install what the tests need

.PHONY: lint
lint: $(VENV)/.stamp-test ## ruff, mypy and import-linter
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

.PHONY: pytest
pytest: setup
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m '$(WHICH)' $(PYTEST_ARGS)

.PHONY: without
without: setup ## The core's tests without each wing in turn, deleted in a copy
	@for wing in live preflights fleet torch_traces simulation histories pytest_plugin mpi; do echo "without $$wing" && .ci/without $$wing; done

.PHONY: test-matrix
test-matrix: ## Tests on other versions of Python and distributed, and without extras, in .venv-matrix
	@for python in $(MATRIX_PYTHONS); do for distributed in $(MATRIX_DISTRIBUTED); do \
		.ci/matrix "$$python" "$$distributed"; \
	done; done
	@WHICH='not slow' .ci/matrix $(lastword $(MATRIX_PYTHONS)) $(lastword $(MATRIX_DISTRIBUTED)) none

.PHONY: journeys
journeys: setup ## What nine strangers type, each in a fresh environment, and the time to their answers
	@$(BIN)/python -m tests.journeys

.PHONY: monitor
monitor: $(VENV)/.stamp-monitor ## A demo cluster, a real Prometheus that watches it, and its alerts
	@.ci/find-prometheus
	@exec $(BIN)/python -m dashboards.monitor

.PHONY: dashboards
dashboards: $(VENV)/.stamp-test ## Write the Grafana dashboards anew, and run all their queries
	@$(BIN)/python -m dashboards.generate
	@.ci/find-prometheus
	@$(BIN)/python -m dashboards.prove

.PHONY: benchmark
benchmark: $(VENV)/.stamp-test ## Costs of the plugin; another claim of benchmarks/README.md with BENCH=critical_path and so on
	@$(BIN)/python -m benchmarks.$(BENCH)

.PHONY: claims
claims: $(VENV)/.stamp-test ## Figures of all claims of benchmarks/README.md, a night; CLAIM="critical_path live" some; LIST=1 what is missing
	@$(BIN)/python -m benchmarks.claims $(if $(LIST),--list) $(CLAIM)

.PHONY: docs
docs: $(VENV)/.stamp-docs ## The documentation as a site, in docs/_build; a warning is an error
	@$(BIN)/python -m sphinx --builder html --jobs auto --quiet --nitpicky --fail-on-warning --keep-going docs docs/_build
	@echo "docs/_build/index.html"

.PHONY: dist
dist: $(VENV)/.stamp-dist ## The sdist and the wheel in dist/, checked, and used where only Dask is installed
	@.ci/dist

.PHONY: clean
clean: ## Remove environments, caches and builds
	rm -rf $(VENV) .venv-matrix build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f dask_efficiency/gpu/cupti/libcallbacks.so.*

# A .venv that works is kept, whoever made it; half of one is made anew. pip knows --group from 25.1.
$(VENV)/.stamp-venv:
	@python=$$(.ci/find-python); \
	if ! { $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	       && $(PIP) --version; } >/dev/null 2>&1; then \
		echo "Making $(VENV) with $$python"; \
		"$$python" -m venv --clear $(VENV); \
	fi
	@$(PIP) install --quiet --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.stamp-demo: pyproject.toml $(COMPILED) | $(VENV)/.stamp-venv
	@echo "Installing what the demo needs in $(VENV)"
	@$(PIP) install --quiet --editable '.[report]' --group demo
	@touch $@

$(VENV)/.stamp-monitor: pyproject.toml $(COMPILED) | $(VENV)/.stamp-venv
	@echo "Installing what the monitor needs in $(VENV)"
	@$(PIP) install --quiet --editable '.[prometheus,dashboard]' --group demo
	@touch $@

$(VENV)/.stamp-test: pyproject.toml $(COMPILED) | $(VENV)/.stamp-venv
	@echo "Installing what the tests need in $(VENV)"
	@$(PIP) install --quiet --editable '.[prometheus,dashboard,report,gpu]' --group test --group lint
	@touch $@ $(VENV)/.stamp-demo $(VENV)/.stamp-monitor

$(VENV)/.stamp-docs: pyproject.toml | $(VENV)/.stamp-venv
	@echo "Installing what the documentation needs in $(VENV)"
	@$(PIP) install --quiet --editable . --group docs
	@touch $@

$(VENV)/.stamp-dist: pyproject.toml | $(VENV)/.stamp-venv
	@echo "Installing what builds and checks distributions in $(VENV)"
	@$(PIP) install --quiet --group dist
	@touch $@

$(VENV)/.stamp-torch: pyproject.toml | $(VENV)/.stamp-venv
	@echo "Installing torch in $(VENV)"
	@$(PIP) install --quiet --group minder
	@touch $@

# Without what it asks for: JupyterLab is not imported, and the rest is there.
$(VENV)/.stamp-oracle: pyproject.toml | $(VENV)/.stamp-test
	@echo "Installing HTA in $(VENV)"
	@$(PIP) install --quiet --no-deps --group oracle
	@touch $@

$(VENV)/.stamp-jupyter: pyproject.toml | $(VENV)/.stamp-test
	@echo "Installing JupyterLab in $(VENV)"
	@$(PIP) install --quiet --group jupyter
	@touch $@

# Of dask-kubernetes only the schemas are read, and they need none of the Kubernetes clients that it asks for.
$(VENV)/.stamp-deploy: pyproject.toml | $(VENV)/.stamp-test
	@echo "Installing what starts Dask elsewhere in $(VENV)"
	@$(PIP) install --quiet --group deploy
	@$(PIP) install --quiet --no-deps --group kubernetes
	@touch $@
