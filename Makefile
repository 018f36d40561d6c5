# make demo: a network learns handwritten digits.  make test: every check.  make bench: timings (BENCH=--quick).
# make fuzz: random programs of new seeds (SECONDS=300; SEED=any text, the commit's hash by default).
# Each sets up its own virtual environment in .venv and needs nothing installed but Python 3.11+.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.14 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
SECONDS ?= 300
SEED ?= $(shell git rev-parse HEAD 2>/dev/null || date)
BIN := $(VENV)/bin

.PHONY: demo test fuzz lint bench clean

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
	$(BIN)/ruff check rlx tests examples benchmarks
	$(BIN)/ty check rlx

test: lint
	RLX_CHECK=1 $(BIN)/python -m pytest -n 2 --dist worksteal

fuzz: $(VENV)/tested
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) --seed "$(SEED)"

bench: $(VENV)/tested
	$(BIN)/python -m benchmarks.run $(BENCH)

clean:
	rm -rf $(VENV) build *.egg-info
