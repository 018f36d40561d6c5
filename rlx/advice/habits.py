"""Names from other libraries, and their equivalents in rlx."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial, reduce
from pkgutil import resolve_name

from rlx.errors import MissingNameError, did_you_mean, similar

__all__ = ["ARRAY_NAMES", "missing_attribute", "missing_name", "remedy_for"]

_DERIVATIVE = "Derivatives are of functions: rlx.grad(f)(x)."
_IN_PLACE = "Arrays are immutable: x = x.at[index].set(value), or .add, .multiply, ...; rlx.numpy makes new ones."
_CAST = "Write x.astype(rlx.numpy.{})."
_NO_STATE = "Random numbers are functions of a key, without state: key = rlx.random.key(seed)."

_SPARSE = "Write rlx.sparse.{}, or rlx.sparse.fromscipy(matrix)."
_ASSEMBLY = "Collect rows, columns and values, and write rlx.sparse.COO(data, row, col, shape)."

# methods of other libraries' arrays and tensors that are functions in rlx
_CROSS_ENTROPY = (
    "With integer labels write rlx.optim.softmax_cross_entropy_with_integer_labels(logits, labels).mean();"
    " with one-hot labels or probabilities, rlx.optim.softmax_cross_entropy(logits, labels).mean()."
)
_FUNCTIONS = """abs add arccos arcsin arctan ceil concatenate cos cosh cross diff divide equal erf exp exp2 expm1 flip
    floor histogram isfinite isinf isnan log log10 log1p log2 matmul maximum median minimum multiply nan_to_num negative
    nansum outer pad power quantile reciprocal relu roll sigmoid sign sin sinh split sqrt square stack subtract tan tanh
    tile tril triu unique where"""
# in-place methods
_WRITERS = "add_ clamp_ copy_ div_ exp_ fill_ mul_ normal_ relu_ sub_ uniform_ zero_ setfield setflags"
# equivalents of methods of other libraries' arrays and tensors; "": the function of that name
ARRAY_NAMES: dict[str, str] = {
    **dict.fromkeys(_FUNCTIONS.split(), ""),
    **dict.fromkeys(_WRITERS.split(), _IN_PLACE),
    "append": "Write x = rlx.numpy.append(x, values); in a loop, collect in a list and stack it, or use rlx.lax.scan.",
    "extend": "Write x = rlx.numpy.concatenate([x, values]).",
    "insert": "Write x = rlx.numpy.insert(x, index, values).",
    "pop": "Write x = x[:-1], or rlx.numpy.delete(x, index).",
    "unsqueeze": "Write rlx.numpy.expand_dims(x, axis), or x[None].",
    "detach": "Write rlx.lax.stop_gradient(x).",
    "backward": _DERIVATIVE,
    "grad": _DERIVATIVE,
    "requires_grad": _DERIVATIVE,
    "requires_grad_": _DERIVATIVE,
    "numpy": "Write np.asarray(x), outside of traced functions.",
    "get": "Write np.asarray(x), outside of traced functions.",
    "cpu": "Write rlx.device_put(x, device); np.asarray(x) gives NumPy's array.",
    "cuda": "Write rlx.device_put(x, device).",
    "to": "Write x.astype(dtype) for another dtype, rlx.device_put(x, device) for another device.",
    "float": _CAST.format("float32"),
    "double": _CAST.format("float64"),
    "half": _CAST.format("float16"),
    "bfloat16": _CAST.format("bfloat16"),
    "int": _CAST.format("int32"),
    "long": _CAST.format("int64"),
    "bool": _CAST.format("bool"),
    "permute": "Write x.transpose(axes).",
    "t": "Write x.T.",
    "H": "Write x.mT.conj().",
    "dim": "Write x.ndim.",
    "numel": "Write x.size.",
    "nelement": "Write x.size.",
    "get_shape": "Write x.shape.",
    "contiguous": "Leave it out: memory is laid out by the compiler.",
    "is_contiguous": "Leave it out: memory is laid out by the compiler.",
    "expand": "Write rlx.numpy.broadcast_to(x, shape).",
    "expand_as": "Write rlx.numpy.broadcast_to(x, other.shape).",
    "view_as": "Write x.reshape(other.shape).",
    "repeat_interleave": "Write x.repeat(repeats, axis).",
    "masked_fill": "Write rlx.numpy.where(mask, value, x).",
    "masked_select": "Write x[mask]; in jit, rlx.numpy.where(mask, x, other).",
    "index_select": "Write rlx.numpy.take(x, indices, axis).",
    "gather": "Write rlx.numpy.take_along_axis(x, indices, axis).",
    "scatter": "Write x.at[indices].set(values).",
    "scatter_add": "Write x.at[indices].add(values).",
    "index_add": "Write x.at[indices].add(values).",
    "clamp": "Write x.clip(low, high).",
    "mm": "Write x @ y.",
    "bmm": "Write x @ y.",
    "topk": "Write rlx.lax.top_k(x, k).",
    "softmax": "Write rlx.nn.softmax(x, axis).",
    "log_softmax": "Write rlx.nn.log_softmax(x, axis).",
    "norm": "Write rlx.numpy.linalg.norm(x).",
    "inverse": "Write rlx.numpy.linalg.inv(x).",
    "values": "An array is its values: write x.",
    "fill": "Write x = rlx.numpy.full_like(x, value).",
    "put": "Write x = x.at[indices].set(values).",
    "itemset": "Write x = x.at[index].set(value).",
    "resize": "Write x = rlx.numpy.resize(x, shape).",
    "partition": "Write x = rlx.numpy.partition(x, kth).",
    "tofile": "Write np.asarray(x).tofile(file), or rlx.save.",
    "dump": "Write rlx.save(file, x).",
    "tostring": "Write x.tobytes().",
    "strides": "Memory is laid out by the compiler; np.asarray(x).strides are NumPy's.",
    "flags": "Memory is laid out by the compiler; np.asarray(x).flags are NumPy's.",
    "ctypes": "Write np.asarray(x).ctypes.",
    "base": "Arrays are values: none is a view of another.",
}
# methods of SciPy's sparse matrices
_DENSE = "Write A.todense(), and use the array."
_SPARSE_METHODS = {
    **dict.fromkeys(("toarray", "A", "to_dense"), "Write A.todense()."),
    **dict.fromkeys(("dot", "matmul", "mv", "spmv"), "Write A @ x."),
    "multiply": "Write A * B for the product of elements.",
    "transpose": "Write A.T.",
    "H": "Write A.T.conj().",
    "copy": "Leave it out: matrices are immutable.",
    **dict.fromkeys(("setdiag", "eliminate_zeros", "sum_duplicates", "sort_indices"), "Matrices are immutable."),
    **dict.fromkeys("tolil todok tobsr todia".split(), "Write rlx.sparse.fromscipy(A.toscipy().todia())."),
    **dict.fromkeys("sum mean max min nonzero getrow getcol argmax count_nonzero".split(), _DENSE),
    "size": "Write A.nnz for the stored elements, A.shape for the sizes.",
}
_MODULE_NAMES: dict[str, dict[str, str]] = {
    **dict.fromkeys(("rlx.sparse.CSR", "rlx.sparse.CSC", "rlx.sparse.COO", "rlx.sparse.BSR"), _SPARSE_METHODS),
    "rlx.sparse.DIA": _SPARSE_METHODS,
    "rlx.numpy": {
        "cat": "Write rlx.numpy.concatenate(arrays, axis).",
        "clamp": "Write rlx.numpy.clip(x, low, high).",
        "unsqueeze": "Write rlx.numpy.expand_dims(x, axis).",
        "mm": "Write x @ y.",
        "tensor": "Write rlx.numpy.array(values).",
        "random": "Write rlx.random, whose functions take a key: rlx.random.normal(rlx.random.key(0), shape).",
        "rand": "Write rlx.random.uniform(key, shape).",
        "randn": "Write rlx.random.normal(key, shape).",
        "ndindex": "Write np.ndindex(shape): it gives Python's numbers.",
        "matrix": "Write rlx.numpy.array(values), and x @ y for the product.",
        "copyto": _IN_PLACE,
        "putmask": "Write x = rlx.numpy.where(mask, values, x).",
    },
    "rlx.nn": {
        "dropout": "Write rlx.numpy.where(rlx.random.bernoulli(key, keep, x.shape), x / keep, 0).",
        **dict.fromkeys(("cross_entropy", "softmax_cross_entropy"), _CROSS_ENTROPY),
        "mse_loss": "Write rlx.optim.squared_error(predictions, targets).mean().",
    },
    "rlx.random": {
        "seed": _NO_STATE,
        "default_rng": _NO_STATE,
        "manual_seed": _NO_STATE,
        "RandomState": _NO_STATE,
        "rand": "Write rlx.random.uniform(key, shape).",
        "random": "Write rlx.random.uniform(key, shape).",
        "randn": "Write rlx.random.normal(key, shape).",
        "shuffle": "Write rlx.random.permutation(key, x).",
        "integers": "Write rlx.random.randint(key, shape, low, high).",
    },
    "rlx.optim": {
        "cross_entropy": _CROSS_ENTROPY,
        "step": "Write updates, state = optimizer.update(grads, state), and rlx.optim.apply_updates(params, updates).",
    },
    "rlx.sparse": {
        **dict.fromkeys(("csr_matrix", "csr_array", "BCSR"), _SPARSE.format("CSR(data, indices, indptr, shape)")),
        **dict.fromkeys(("csc_matrix", "csc_array"), _SPARSE.format("CSC(data, indices, indptr, shape)")),
        **dict.fromkeys(("coo_matrix", "coo_array", "BCOO"), _SPARSE.format("COO(data, row, col, shape)")),
        **dict.fromkeys(("bsr_matrix", "bsr_array"), _SPARSE.format("BSR(data, indices, indptr, shape)")),
        **dict.fromkeys(("dia_matrix", "dia_array"), _SPARSE.format("DIA(data, offsets, shape)")),
        **dict.fromkeys(("lil_matrix", "lil_array", "dok_matrix", "dok_array"), _ASSEMBLY),
        "linalg": "The solvers are functions of rlx.sparse: rlx.sparse.spsolve(A, b), rlx.sparse.cg(A, b).",
        "identity": "Write rlx.sparse.eye(n).",
        "sparsify": "Leave it out: jit, grad and vmap take the matrices of rlx.sparse.",
        **dict.fromkeys(("issparse", "isspmatrix"), "Write isinstance(A, rlx.sparse.SparseMatrix)."),
        **dict.fromkeys(("load_npz", "random", "rand"), "Make it with SciPy, and write rlx.sparse.fromscipy(matrix)."),
        "save_npz": "Write scipy.sparse.save_npz(file, A.toscipy()).",
    },
    "rlx.gguf": dict.fromkeys(
        ("load", "open", "read"), "Write rlx.gguf.GGUFFile(path), or rlx.lm.load(path) for a language model."
    ),
    "rlx": {
        "dlpack": "Write rlx.numpy.from_dlpack(x); arrays of rlx are passed to from_dlpack of other libraries.",
        "interpreters": "rlx.make_program(f)(*args) shows the traced program, rlx.core has its classes.",
        "xla_computation": "Write rlx.jit(f).lower(*args).as_text().",
        "tree_map": "Write rlx.tree.map(function, tree).",
    },
}
# public paths, in this order searched for names that are missing in another module
_NAMESPACES = """rlx rlx.numpy rlx.lax rlx.nn rlx.random rlx.numpy.linalg rlx.numpy.fft rlx.tree rlx.optim rlx.data
    rlx.image rlx.sharding rlx.distributed rlx.testing rlx.scipy.special rlx.scipy.linalg rlx.scipy.stats
    rlx.scipy.signal rlx.scipy.optimize rlx.scipy.integrate rlx.scipy.interpolate rlx.scipy.ndimage
    rlx.tree_util rlx.experimental rlx.sparse""".split()
_LAYERS = (
    "Layers are functions of arrays, and parameters are trees: docs/layers.md shows layers, losses and a training step."
    " rlx.nn has the functions."
)
_INTEGER_LABELS = "Write rlx.optim.softmax_cross_entropy_with_integer_labels(logits, labels).mean()."
_OPTIMISERS = (
    "Optimisers are functions of gradients: updates, state = optimizer.update(grads, state, params), then"
    " params = rlx.optim.apply_updates(params, updates)."
)
_NO_RECORD = "Leave it out: operations are recorded only inside rlx.grad, rlx.vjp and rlx.jvp."
_BATCHES = "Write rlx.data.DataLoader(dataset, batch_size), or rlx.data.batches(arrays, size) for arrays."
_SCHEDULE = "Pass a schedule as the learning rate, for instance rlx.optim.cosine_decay_schedule(1e-3, steps)."
_DEVICES = "Write rlx.devices(); rlx.device_put(x, device) moves an array, and RLX_DEVICE sets the default device."
_MODULES = """Module Linear Dense Conv Conv1d Conv2d Conv3d ConvTranspose2d Sequential ModuleList ModuleDict Embedding
    Embed Dropout Dropout2d LayerNorm BatchNorm BatchNorm1d BatchNorm2d GroupNorm InstanceNorm2d RMSNorm RNN LSTM GRU
    LSTMCell GRUCell MultiheadAttention MultiHeadAttention Transformer TransformerEncoder TransformerEncoderLayer
    Flatten MaxPool2d AvgPool2d AdaptiveAvgPool2d Parameter ParameterList Bilinear Upsample Identity Lambda MLP Layer"""
# names of other libraries that any module may be asked for -> the equivalent in rlx
_ANYWHERE: dict[str, str] = {
    **dict.fromkeys(_MODULES.split(), _LAYERS),
    **dict.fromkeys(("CrossEntropyLoss", "NLLLoss", "nll_loss"), _INTEGER_LABELS),
    **dict.fromkeys(
        ("BCELoss", "BCEWithLogitsLoss", "binary_cross_entropy", "binary_cross_entropy_with_logits"),
        "Write rlx.optim.sigmoid_binary_cross_entropy(logits, labels).mean().",
    ),
    **dict.fromkeys(("MSELoss", "mse_loss"), "Write rlx.numpy.square(predictions - targets).mean()."),
    **dict.fromkeys(("L1Loss", "l1_loss"), "Write rlx.numpy.abs(predictions - targets).mean()."),
    **dict.fromkeys(("HuberLoss", "SmoothL1Loss"), "Write rlx.optim.huber_loss(predictions, targets).mean()."),
    **dict.fromkeys(("DataLoader", "Dataset", "TensorDataset", "IterableDataset", "dataloader"), _BATCHES),
    **dict.fromkeys(("manual_seed", "set_seed", "seed", "default_rng", "RandomState", "Generator"), _NO_STATE),
    **dict.fromkeys(("no_grad", "enable_grad", "inference_mode", "set_grad_enabled"), _NO_RECORD),
    **dict.fromkeys(("tensor", "Tensor", "as_tensor", "from_numpy", "FloatTensor"), "Write rlx.numpy.array(values)."),
    **dict.fromkeys(("set_default_dtype", "set_floatx"), "Write rlx.config.update('default_float', 'float64')."),
    **dict.fromkeys(("cuda", "is_available", "set_default_device", "list_devices"), _DEVICES),
    **dict.fromkeys(("autograd", "backward", "GradientTape", "Variable"), _DERIVATIVE),
    **dict.fromkeys(("zero_grad", "step", "Optimizer", "TrainState"), _OPTIMISERS),
    **dict.fromkeys(("lr_scheduler", "StepLR", "CosineAnnealingLR", "LambdaLR", "OneCycleLR"), _SCHEDULE),
    **dict.fromkeys(("functional", "F"), "The functions are in rlx.nn and rlx.numpy."),
    **dict.fromkeys(("function", "njit", "script"), "Write rlx.jit(f)."),
    "clip_grad_norm_": "Write rlx.optim.chain(rlx.optim.clip_by_global_norm(1.0), rlx.optim.adam(1e-3)).",
    "enable_eager_execution": "Leave it out: functions without rlx.jit run at once.",
    "scipy": "Write rlx.scipy.",
    "solve_ivp": "Write rlx.scipy.integrate.solve_ivp; in jit, rlx.experimental.ode.odeint(f, y0, t).",
    "odeint": "Write rlx.experimental.ode.odeint(f, y0, t).",
    "rand": "Write rlx.random.uniform(key, shape).",
    "randn": "Write rlx.random.normal(key, shape).",
    "cat": "Write rlx.numpy.concatenate(arrays, axis).",
    "get_default_dtype": "Read rlx.config.default_float.",
    "wrap_key": "Write rlx.random.wrap_key_data(data).",
    "pytree": "Write rlx.tree.",
    "tree_multimap": "Write rlx.tree.map(function, tree, *rest).",
    "host_callback": "Write rlx.pure_callback or rlx.io_callback.",
    "soft_pmap": "Write rlx.vmap, or rlx.shard_map over a mesh.",
    "index_update": "Write x = x.at[index].set(value).",
    "index_add": "Write x = x.at[index].add(value).",
    "ops_index": "Write x.at[index].",
}


def missing_name(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that one of rlx's modules does not have; `known`: the names that it has."""
    if name.startswith("_"):  # looked up by import, inspect and doctest
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    find = partial(_find, module)
    return MissingNameError(f"{module} has no {name}.", name=name, known=known, find=find)


def remedy_for(module: str, name: str) -> str:
    """The equivalent of a name that was to be imported from a module, or of a module that rlx does not have.

    >>> from rlx.advice.habits import remedy_for
    >>> remedy_for("rlx.numpy", "cat")
    'Write rlx.numpy.concatenate(arrays, axis).'
    """
    return _find(module, name, _names(module))


def _find(module: str, name: str, known: Iterable[str]) -> str:
    """The equivalent of a name that a module does not have, in the module or elsewhere; empty if there is none."""
    said = _MODULE_NAMES.get(module, {}).get(name) or _elsewhere(name) or _ANYWHERE.get(name)
    if said:
        return said
    theirs = _original(module, name)
    if theirs:
        return f"Outside of jit, {theirs} takes rlx arrays and rlx functions."
    own = tuple(known)
    least = max([ratio for ratio, _ in similar(name, own)], default=0.0)
    homes: dict[str, str] = {}
    for path in _NAMESPACES:
        for other in _names(path):
            homes.setdefault(other, path)
    better = [n for ratio, n in similar(name, homes.keys() - set(own)) if ratio > least]
    near = did_you_mean(name, [*own, *better], lambda n: f"{homes[n]}.{n}" if n in better else n)
    return near or f"dir({module}) lists its names."


def _original(module: str, name: str) -> str:
    """The path of a function of NumPy or SciPy that rlx's module of the same name does not have; empty if none."""
    path = module.removeprefix("rlx.")
    if path == module or path.partition(".")[0] not in ("numpy", "scipy"):
        return ""
    try:
        return f"{path}.{name}" if callable(resolve_name(f"{path}.{name}")) else ""
    except (AttributeError, ImportError, ValueError):
        return ""


def missing_attribute(name: str) -> MissingNameError:
    """The error for an attribute that arrays of other libraries have."""
    instead = ARRAY_NAMES[name] or _elsewhere(name, "(x)")
    return MissingNameError(f"An array has no attribute {name}.", instead, name=name)


def _elsewhere(name: str, call: str = "") -> str:
    """Which of rlx's modules has a name, as a sentence; empty if none has."""
    for path in _NAMESPACES:
        if name in _names(path):
            return f"Write {path}.{name}{call}."
    return ""


def _names(path: str) -> tuple[str, ...]:
    """The names of a public module, which is imported; none while rlx is being imported."""
    top, *parts = path.split(".")
    try:
        return tuple(reduce(getattr, parts, sys.modules[top]).__all__)
    except (AttributeError, KeyError):
        return ()
