# make demo: a network learns handwritten digits.  make test: every check.  make bench: timings (BENCH=--quick).
# make test-other-python: the tests that depend most on the interpreter, on another version of Python if one is installed.
# make test-backends: what make test has the interpreter run of the numba device, compiled by Numba.
# make test-opencl: the OpenCL device, on a runtime for processors that it installs.
# make test-pages: interactive pages in Chromium without a screen, if it is installed.
# make test-packages: the wheel and the source archive, built and installed in clean environments.
# make test-types: typical uses under mypy, pyright (which Node runs) and ty.
# make docs: the site in build/site, every link followed; it needs no network to be read.
# make fuzz: random programs of new seeds (SECONDS=300; SEED=any text, the commit's hash by default).
# Each sets up its own virtual environment in .venv and needs nothing installed but Python 3.11+.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.14 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
SECONDS ?= 300
SEED ?= $(shell git rev-parse HEAD 2>/dev/null || date)
BIN := $(VENV)/bin

OTHER_PYTHON ?= $(shell .ci/other-python $(BIN)/python)
OTHER_VENV := .venv-other
# what asks the interpreter: frames and lines, code objects, references, threads, signals, tracebacks, files
OTHER_TESTS := $(addprefix tests/, test_jit.py test_errors.py test_tree.py test_storage.py test_arrays.py test_dispatch.py \
	test_threads_and_interrupts.py test_replay.py test_shared_traces.py test_inspect.py test_eager.py support \
	$(addprefix transforms/test_, more_rules.py reverse.py vmap.py jvp.py control_flow.py custom_rules.py) \
	robust/test_after_failures.py)

.PHONY: demo docs test test-packages test-pages test-types test-backends test-opencl test-other-python fuzz lint bench clean

$(VENV)/installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "rlx needs Python 3.11 or newer; set PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[examples]"
	touch $@

$(VENV)/tested: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[examples,test]"
	touch $@

demo: $(VENV)/installed
	$(BIN)/python examples/digits.py

lint: $(VENV)/tested
	$(BIN)/ruff check rlx tests examples benchmarks notebooks
	$(BIN)/ty check rlx

test: lint
	RLX_CHECK=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test-backends: $(VENV)/tested
	RLX_CHECK=1 RLX_TEST_COMPILED=1 $(BIN)/python -m pytest -n 2 --dist worksteal tests/test_primitives.py -k "compiled and numba"

$(VENV)/opencl: $(VENV)/tested
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[opencl-cpu]"
	touch $@

test-opencl: $(VENV)/opencl
	RLX_CHECK=1 RLX_TEST_OPENCL=1 $(BIN)/python -m pytest -n 2 --dist worksteal tests/backends/test_opencl.py

test-other-python: $(VENV)/tested
	@python="$(OTHER_PYTHON)"; \
	if test -z "$$python"; then echo "test-other-python: no other Python from 3.11 to 3.14 is installed; nothing was run"; exit; fi; \
	version="$$("$$python" -c 'import platform; print(platform.python_version())')"; \
	set -ex; \
	if ! test -e $(OTHER_VENV)/$$version -a $(OTHER_VENV)/$$version -nt pyproject.toml; then \
		"$$python" -m venv --clear $(OTHER_VENV); \
		$(OTHER_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[test]"; \
		touch $(OTHER_VENV)/$$version; \
	fi; \
	RLX_CHECK=1 $(OTHER_VENV)/bin/python -m pytest -n 2 --dist worksteal $(OTHER_TESTS); \
	echo "test-other-python: ran on Python $$version"

fuzz: $(VENV)/tested
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) --seed "$(SEED)"

# the wheel and the source archive, each installed in an environment of its own, where the wheel's files are asked for too
test-packages: $(VENV)/tested
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	.ci/packages $(BIN)/python

test-pages: $(VENV)/pages
	@if command -v chromium chromium-browser google-chrome >/dev/null 2>&1; then \
		RLX_CHECK=1 $(BIN)/python -m pytest -n 0 tests/pages; \
	else \
		echo "test-pages: no Chromium is installed (Debian: apt-get install chromium); nothing was run"; \
	fi

$(VENV)/pages: $(VENV)/tested
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[pages]"
	touch $@

test-types: $(VENV)/types
	$(BIN)/python -m pytest -n 0 tests/typed

$(VENV)/types: $(VENV)/tested
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[types]"
	touch $@

docs: $(VENV)/documents
	$(BIN)/python docs/make_site.py build/site
	RLX_TEST_SITE=build/site $(BIN)/python -m pytest -n 0 tests/test_site.py

$(VENV)/documents: $(VENV)/tested
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	touch $@

bench: $(VENV)/tested
	$(BIN)/python -m benchmarks.run $(BENCH)

clean:
	rm -rf $(VENV) $(OTHER_VENV) build *.egg-info
