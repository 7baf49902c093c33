# Works from a fresh clone with Python 3.10-3.13, pip and make. `make` alone lists the targets.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST ?= $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Made once, and again when the dependencies may have changed. pip stays inside $(VENV).
$(VENV)/.made:
	@$(PYTHON) .ci/check_python.py
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed-all: $(VENV)/.made pyproject.toml
	@$(BIN)/python .ci/install.py -e '.[all]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.made pyproject.toml
	@$(BIN)/python .ci/install.py -e '.[all,dev,frameworks,tpu]'
	@touch $@ $(VENV)/.installed-all

.PHONY: demo
demo: $(VENV)/.installed-all  ## lint a sample, profile it on 8 simulated cores, show the report
	@XLADOCTOR=$(BIN)/xladoctor TRAIN_PYTHON=$(BIN)/python sample_runs/demo.sh

.PHONY: test
test: check  ## everything that is checked before a merge
	$(PYTEST) -n 2 -m "not xla and not slow"
	$(PYTEST) -n 2 --dist loadfile -m "xla and not slow"

.PHONY: test-slow
test-slow: $(VENV)/.installed-dev  ## tests that take long: before a release, and when their subject changed
	$(PYTEST) -n 2 --dist loadfile -m slow

.PHONY: torchtpu
torchtpu: $(VENV)/.installed-dev  ## programs for TorchTPU as profile records them: TORCH_TPU_PYTHON=python3.12 TPU_LIBRARY_PATH=file
	@test -n "$(TORCH_TPU_PYTHON)" || { echo "name a Python that has torch_tpu: make torchtpu TORCH_TPU_PYTHON=... (and TPU_LIBRARY_PATH=... without a TPU)"; exit 2; }
	TORCH_TPU_PYTHON="$(TORCH_TPU_PYTHON)" TPU_LIBRARY_PATH="$(TPU_LIBRARY_PATH)" $(PYTEST) tests/torchtpu

.PHONY: check
check: lint  ## linters, types and the doors between the rooms
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: lint
lint: $(VENV)/.installed-dev  ## ruff: rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

.PHONY: format
format: $(VENV)/.installed-dev  ## put the code into form
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: bench
bench: $(VENV)/.installed-dev  ## what watching and simulating cost, as ratios; how fast a large log is read
	PYTHONPATH=. $(BIN)/python tests/benchmarks/cost_of_hooks.py
	$(BIN)/python tests/benchmarks/cost_per_step.py
	$(BIN)/python tests/benchmarks/cost_of_checks.py
	$(BIN)/python tests/benchmarks/cost_of_watching.py
	$(BIN)/python tests/benchmarks/read_reports.py
	$(BIN)/python tests/benchmarks/simulated_cores.py
	PYTHONPATH=. $(BIN)/python tests/benchmarks/lint_speed.py

# The labelled places and the public files that they are in belong to others and are never committed:
# put them into .accuracy/ (ignored), as .accuracy/lint.jsonl and .accuracy/files/owner+name/commit/path.
CASES ?= .accuracy/lint.jsonl
FILES ?= .accuracy/files

.PHONY: accuracy
accuracy: $(VENV)/.installed-dev  ## precision and recall of lint: CASES=lint.jsonl FILES=folder
	@test -f "$(CASES)" || { echo "$(CASES) is missing: make accuracy CASES=lint.jsonl FILES=folder (see tests/accuracy/lint.py)" >&2; exit 2; }
	PYTHONPATH=. $(BIN)/python tests/accuracy/lint.py --cases $(CASES) --files $(FILES)
	PYTHONPATH=. $(BIN)/python tests/accuracy/plain.py

# MUTANTS=200 for a first look.
MUTANTS ?= 2000

.PHONY: mutants
mutants: $(VENV)/.installed-dev  ## faults planted in healthy programs, in many spellings: how many lint finds
	$(BIN)/python -m tests.accuracy.mutants --count $(MUTANTS) --write

.PHONY: accuracy-unseen
accuracy-unseen: $(VENV)/.installed-dev  ## the labelled sets of docs/accuracy.md that are kept here: fetches their public files with git, writes the table
	$(BIN)/python -m tests.accuracy.unseen --write

.PHONY: accuracy-rewritten
accuracy-rewritten: $(VENV)/.installed-dev  ## the same files in other spellings: what comes and goes, writes the table (after accuracy-unseen)
	$(BIN)/python -m tests.accuracy.rewritten --write

.PHONY: accuracy-written
accuracy-written: $(VENV)/.installed-dev  ## programs that were written to hold known faults: what is found of them, writes the table
	$(BIN)/python -m tests.accuracy.written --write

.PHONY: accuracy-tutorials
accuracy-tutorials: $(VENV)/.installed-dev  ## what the fixes make of public programs of 2019-2021: FILES=folder
	PYTHONPATH=. $(BIN)/python tests/accuracy/tutorials.py --files $(FILES)

.PHONY: accuracy-reports
accuracy-reports: $(VENV)/.installed-dev  ## check report against labelled reports: REPORTS=folder
	@test -n "$(REPORTS)" || { echo "say where the labelled reports are: make accuracy-reports REPORTS=folder" >&2; exit 2; }
	$(BIN)/python tests/accuracy/reports.py $(REPORTS)

# Some hours on a busy machine; what has been measured before, of a program that has not changed, is
# kept. BY=lint,run leaves verify out.
BY ?= lint,run,verify

.PHONY: accuracy-silent
accuracy-silent: $(VENV)/.installed-dev  ## published silent faults, and healthy programs: what finds them, at which line
	$(BIN)/python -m tests.accuracy.silent.run --by $(BY) --write

.PHONY: accuracy-tpu
accuracy-tpu: $(VENV)/.installed-dev  ## the TPU compiler's estimates against published peaks and training speeds (hours)
	PYTHONPATH=. $(BIN)/python tests/accuracy/peaks.py --write
	PYTHONPATH=. $(BIN)/python tests/accuracy/published.py --again --write

# The programs belong to others and are never committed: put them into PROGRAMS, as owner+name/path.
# TIMES=5, here and for conformance: each so often, two at the same time, and what differs is told.
PROGRAMS ?= .programs/files
TIMES ?=

.PHONY: programs
programs: $(VENV)/.installed-dev  ## real programs on plain CPU and on simulated cores (an hour): PROGRAMS=folder
	@test -d "$(PROGRAMS)" || { echo "say where the programs are: make programs PROGRAMS=folder (see tests/programs/programs.toml)" >&2; exit 2; }
	@mkdir -p .xladoctor
	$(BIN)/python -m tests.programs.run --files $(PROGRAMS) $(if $(TIMES),--times $(TIMES) --jobs 2 --kept .xladoctor/programs.jsonl,--write)

# Some hours: 6 faults and 2 healthy programs, 50 times each, twice. RUNS=5 for a first look. A run that
# was cut off goes on where it was; remove .xladoctor/determinism.jsonl to begin again.
RUNS ?= 50

.PHONY: determinism
determinism: $(VENV)/.installed-dev  ## the same faulty programs give the same reports, with load and without
	@mkdir -p .xladoctor
	$(BIN)/python -m tests.determinism.repeat --runs $(RUNS) --json .xladoctor/determinism.jsonl
	$(BIN)/python -m tests.determinism.repeat --runs $(RUNS) --json .xladoctor/determinism.jsonl --jobs 3

.PHONY: site
site: $(VENV)/.installed-dev  ## the documentation as a site, in build/site
	$(BIN)/python -m mkdocs build --quiet
	@echo "build/site/index.html"

# A checkout of pytorch/xla at the version that tests/conformance/upstream.toml names. A run that was
# cut off goes on where it was; remove .xladoctor/conformance.json to begin again.
PTXLA ?=
CORES ?= 2,8,4

.PHONY: conformance
conformance: $(VENV)/.installed-dev  ## upstream's own multi-core tests on simulated cores (hours): PTXLA=folder
	@mkdir -p .xladoctor
	$(BIN)/python -m tests.conformance.run $(PTXLA) --cores $(CORES) $(if $(TIMES),--times $(TIMES) --jobs 2 --kept .xladoctor/conformance.jsonl,--json .xladoctor/conformance.json)

.PHONY: clean
clean:  ## remove what the other targets made
	rm -rf $(VENV) .xladoctor build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
