# Two commands: `make demo` and `make test`. Each sets up all that it needs.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL ?= 2

LOCKS := requirements/torch.lock requirements/cpu.lock requirements/dev.lock
PACKAGES := $(VENV)/.packages
INSTALLED := $(VENV)/.installed
CPP_FILES := $(shell git ls-files 'cpp/*.cpp' 'cpp/*.h' 'tests/*.cpp' 'tests/*.h' 'bench/*.cpp' 'bench/*.h')
TIDY_FILES := $(shell git ls-files 'cpp/src/*.cpp' 'cpp/kernels/*.cpp')
# An installed package is built from these.
SOURCES := pyproject.toml CMakeLists.txt $(shell git ls-files cmake cpp)

.PHONY: help demo test prove bench lint types tidy cpp asan fuzz python sanitized versions e2e \
  wheel setup debian clean

help: ## This list
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(INSTALLED) ## PP2+PCP2 in real vLLM against its PCP2 control
	pyvllm-pp demo

test: lint types cpp asan tidy fuzz python versions e2e ## Everything but the long forms of prove

prove: setup sanitized ## The long forms: fuzzing, exploration, 1,000,000 batches, all engines
	$(PY) -m tests.fuzz --seconds 600
	cmake --workflow --preset dev
	PYVLLM_PP_EXPLORE=long build/dev/feedback_exploration_test
	$(PY) -m tests.host.versions
	$(PY) -m tests.host.sweep --batches 1000000
	pytest tests/host tests/e2e -m long

setup: debian $(INSTALLED) ## System packages, virtual environment, build

lint: $(INSTALLED) ## Format and lint
	ruff check
	ruff format --check
	clang-format --dry-run -Werror $(CPP_FILES)

types: $(INSTALLED) ## mypy strict, and the stubs against the extensions
	mypy

cpp: setup ## C++ tests, warnings as errors
	cmake --workflow --preset dev

asan: setup ## C++ tests under address and undefined sanitizers
	cmake --workflow --preset asan

tidy: cpp ## clang-tidy
	printf '%s\n' $(TIDY_FILES) | xargs -n 1 -P 2 clang-tidy -p build/dev --quiet

fuzz: setup ## libFuzzer targets, a minute
	$(PY) -m tests.fuzz --seconds 20

sanitized: setup ## Python tests on a sanitized extension
	$(PY) -m tests.sanitized

python: setup ## Python tests without an engine
	pytest tests/python tests/host -m 'not long'

e2e: setup ## Tests in real vLLM, one engine at a time; the long ones are of prove
	pytest tests/e2e -m 'not long'

versions: setup ## 20,000 random batches against vLLM's own managers of all versions
	$(PY) -m tests.host.versions
	$(PY) -m tests.host.sweep --batches 20000

bench: setup ## Speed against stock vLLM: docs/performance.md, bench/results.json
	$(PY) -m bench

wheel: $(INSTALLED) ## A wheel in dist/
	$(PY) -m build --wheel --no-isolation --outdir dist

debian: ## System packages of requirements/debian.txt that are missing
	@missing=$$(for name in $$(grep -v "^\#" requirements/debian.txt); do \
	  dpkg-query -W -f '$${Status}' $$name 2>/dev/null | grep -q 'ok installed' || echo $$name; \
	done); \
	if [ -n "$$missing" ]; then \
	  sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  echo "installing" $$missing; \
	  $$sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq \
	    --no-install-recommends $$missing >/dev/null || \
	  { echo "these system packages are missing:" $$missing >&2; exit 1; }; \
	fi

$(PACKAGES): $(LOCKS)
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet -r requirements/torch.lock
	$(PY) -m pip install --quiet --no-deps -r requirements/cpu.lock -r requirements/dev.lock
	touch $@

$(INSTALLED): $(PACKAGES) $(SOURCES)
	$(PY) -m pip install --quiet --no-build-isolation --no-deps --editable .
	touch $@

clean: ## Remove what was built; the virtual environment stays
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis $(INSTALLED)
