"""The first questions of newcomers: the words of a search, the page that answers, a phrase of the answer."""

from __future__ import annotations

from typing import NamedTuple


class Question(NamedTuple):
    """A question, the words of a search, the page, and a phrase that the page contains."""

    text: str
    search: str
    page: str
    phrase: str


QUESTIONS = [
    Question("Which Python versions?", "python version", "install", "Python 3.11 to 3.14"),
    Question("Does it run on Windows, macOS, ARM?", "windows macos", "platforms", "| part | Linux, x86-64"),
    Question("Does it use my GPU?", "gpu", "gpu", "**Never run on a GPU**"),
    Question("How do I write a training loop?", "training loop", "tutorials/training_loop", "rlx.value_and_grad"),
    Question("How do I seed random numbers?", "random seed", "random_numbers", "rlx.random.key"),
    Question("How does it differ from JAX?", "differences from jax", "tutorials/from_jax", "JAX"),
    Question("How do I print inside jit?", "print in jit", "debugging", "rlx.debug.print"),
    Question("Where does my NaN come from?", "find nan", "debugging", "debug_nans"),
    Question("Can I set a breakpoint?", "breakpoint", "debugging", "breakpoint()"),
    Question("How do I write if and while under jit?", "if while in jit", "control_flow", "lax.cond"),
    Question("How do I scan over a sequence?", "scan loop", "control_flow", "lax.scan"),
    Question("Why is it traced again?", "retrace recompile", "speed", "RLX_EXPLAIN=1"),
    Question("How do I profile?", "profile time", "profiling", "rlx.profile(f)(*args)"),
    Question("Does the compiled code survive the process?", "compile cache warm start", "speed", "kept on disk"),
    Question("How do I clear the cache?", "clear cache", "command_line", "rlx cache"),
    Question("What do I do when memory runs out?", "out of memory", "errors/OutOfMemoryError", "memory"),
    Question("How do I set the number of threads?", "number of threads", "devices", "rlx.set_num_threads"),
    Question("May an argument of jit be a string?", "jit string argument", "control_flow", "static_argnames"),
    Question("Which dtype has a new array?", "default dtype float64", "dtypes", "float32"),
    Question("Which network libraries run on it?", "flax equinox", "ecosystem", "| equinox |"),
    Question("Which optimisers are there?", "optimizer adam", "layers", "rlx.optim"),
    Question("How do I schedule the learning rate?", "learning rate schedule", "layers", "cosine_decay_schedule"),
    Question("How do I clip gradients?", "clip gradients", "layers", "clip_by_global_norm"),
    Question("How do I make batches?", "dataloader batches", "data", "DataLoader"),
    Question("How do I save parameters?", "save model checkpoint", "checkpoints", "CheckpointManager"),
    Question("How do I write a gradient rule?", "custom gradient rule", "tutorials/own_parts", "custom_vjp"),
    Question("Why is my function slow?", "why is my function slow", "speed", "Jit the largest function"),
    Question("How do I solve an ODE?", "ode differential equation", "differential_equations", "odeint"),
    Question("How do I sample with MCMC, or fit a GP?", "mcmc", "tutorials/probabilistic", "Hamiltonian"),
    Question("Where are layers, dropout and losses?", "dropout layers", "layers", "For layer classes"),
    Question("... and cross-entropy?", "cross entropy loss", "layers", "softmax_cross_entropy_with_integer_labels"),
    Question("How do pandas, Polars and PyTorch fit in?", "pandas", "interchange", "pd.DataFrame"),
    Question("... PyTorch tensors?", "torch tensor", "interchange", "torch.from_dlpack"),
    Question("May I use multiprocessing or joblib?", "multiprocessing", "multiprocessing", "`fork` works on `cpu`"),
    Question("... joblib?", "joblib", "multiprocessing", "joblib.Parallel"),
    Question("How do I fit a curve?", "least squares curve_fit", "curve_fitting", "optimize.least_squares"),
    Question("Are there sparse matrices?", "sparse matrix", "sparse", "matrices that store some of their elements"),
    Question("How do I show progress in a scan?", "progress bar scan", "progress", "progress.scan"),
    Question("How do I log to TensorBoard, W&B, MLflow?", "tensorboard", "logging", "TensorBoard"),
    Question("... wandb?", "wandb", "logging", "wandb.init"),
    Question("How do I cite it? Which licence?", "cite", "versions", "@software{rlx"),
    Question("... the licence?", "license", "versions", "Apache-2.0"),
    Question("... deprecations?", "deprecation policy", "versions", "DeprecationWarning"),
    Question("Where do I ask or report a bug?", "report bug", "versions", "Open an issue"),
    Question("Is float64 the default?", "is float64 the default", "dtypes", "default_float` is float32"),
    Question(
        "Which functions of SciPy work?", "which scipy functions work", "curve_fitting", "every function of SciPy"
    ),
    Question("How do I install an extra?", "pip install extra", "install", "pip install '.[examples]'"),
    # other words for some of these
    Question("... supported Python?", "supported python", "versions", "3.11 to 3.14"),
    Question("... CUDA?", "cuda support", "gpu", "**Never run on a GPU**"),
    Question("... a seed?", "set seed", "random_numbers", "rlx.random.key"),
    Question("... compilations?", "too many compilations", "speed", "RLX_EXPLAIN=1"),
    Question("... schedules?", "warmup cosine", "optimisers", "warmup_cosine_decay_schedule"),
    Question("... minibatches?", "minibatch", "data", "DataLoader"),
    Question("... early stopping?", "early stopping", "checkpoints", "**Early stopping**"),
    Question("... gradient checkpointing?", "gradient checkpointing", "memory", "rlx.checkpoint(f)"),
    Question("... several GPUs?", "multi gpu", "sharding", "RLX_NUM_CPU_DEVICES"),
    Question("... a mean of the weights?", "exponential moving average", "optimisers", "optim.ema"),
    Question("... a loss that is NaN?", "nan loss", "debugging", "debug_nans"),
    Question("... a slow first call?", "first call slow", "speed", "kept on disk"),
    Question("... assignments?", "index update in place", "tutorials/from_numpy", "immutable"),
    Question("... weights?", "store weights", "checkpoints", "CheckpointManager"),
]
