"""einsum: contraction by index letters, pair by pair in the order that opt_einsum finds."""

from __future__ import annotations

from functools import cache
from itertools import count as counter
from itertools import islice
from typing import Any

from rlx.array import Array
from rlx.errors import InputTypeError, ShapeError, describe
from rlx.numpy.manipulation import transpose
from rlx.numpy.matrices import diagonal
from rlx.numpy.placement import asks_for_parts, check_placement, refuse_out, sums_in_parts
from rlx.numpy.products import contract
from rlx.numpy.promotion import beside_arrays, convert_to, promote, to_dtype
from rlx.numpy.reductions import sum as sum_
from rlx.ops import shape as shapes
from rlx.trace.flat import as_array
from rlx.trace.replay import replayed

__all__ = ["einsum", "einsum_path"]

Term = tuple[Any, str]


@cache
def _opt_einsum() -> Any:
    """The library, imported at the first einsum."""
    import opt_einsum

    return opt_einsum


def _parse(operands: tuple[Any, ...]) -> tuple[list[str], str, list[Any]]:
    """Letters of every operand, letters of the result, and the operands as arrays."""
    _check_call(operands)
    if isinstance(operands[0], str):
        given = [operands[0], *[as_array(x, "an operand of einsum") for x in beside_arrays(*operands[1:])]]
    else:
        given = [x if isinstance(x, (list, tuple)) else as_array(x, "an operand of einsum") for x in operands]
    try:
        inputs, output, arrays = _opt_einsum().parser.parse_einsum_input(tuple(given))
    except ValueError as error:
        raise ShapeError(
            f"einsum cannot read the subscripts {operands[0]!r:.80}: {str(error).rstrip('.')}.",
            "Write letters for the axes of each operand, and after an arrow the result's letters, which all occur among"
            " the operands': 'ij,jk->ik'.",
        ) from None
    terms = inputs.split(",")
    for letters, x in zip(terms, arrays, strict=True):
        if len(letters) != x.ndim:
            raise ShapeError(
                f"einsum got the subscripts {letters!r} for an array of shape {x.shape}.",
                "Give one letter for each axis, or an ellipsis.",
            )
    _check_sizes(terms, arrays)
    return terms, output, list(arrays)


def _check_call(operands: tuple[Any, ...]) -> None:
    """Raise if subscripts follow the operands, or describe another number of operands."""
    given = operands[1:]
    texts = [x for x in given if isinstance(x, str)]
    if texts and not isinstance(operands[0], str):
        raise InputTypeError(
            f"einsum got its subscripts {texts[0]!r} after an operand.",
            f"They must come first: einsum({texts[0]!r}, x).",
        )
    if isinstance(operands[0], str) and operands[0].split("->")[0].count(",") + 1 != len(given):
        count = operands[0].split("->")[0].count(",") + 1
        raise ShapeError(
            f"einsum got the subscripts {operands[0]!r} for {count} operand{'s' * (count != 1)}, and {len(given)}:"
            f" {', '.join(map(describe, given)) or 'none'}.",
            "Give one group of letters for each operand, with commas between them.",
        )


def _check_sizes(terms: list[str], arrays: Any) -> None:
    sizes: dict[str, int] = {}
    for letters, x in zip(terms, arrays, strict=True):
        for letter, size in zip(letters, x.shape, strict=True):
            known = sizes.setdefault(letter, size)
            if known == 1:
                sizes[letter] = size
            elif size not in (1, known):
                raise ShapeError(
                    f"einsum got the sizes {known} and {size} for the index {letter!r} of {','.join(terms)!r}:"
                    f" the operands are {', '.join(map(describe, arrays))}.",
                    "An index must have one size in all operands.",
                )


@replayed
def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    out: None = None,
    optimize: Any = "auto",
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
    _dot_general: Any = None,
) -> Array:
    """A sum of products, by Einstein's convention.

    Args: subscripts: such as "ij,jk->ik" (or arrays alternating with lists of axis numbers); operands:
    arrays; optimize: how opt_einsum orders the products ("auto", "optimal", "greedy", a path);
    precision: as for lax.dot_general; preferred_element_type: dtype of the result; _dot_general: a function like
    lax.dot_general that computes products of two operands. Returns: an array.
    Raises: ShapeError if subscripts and shapes are incompatible.

    >>> import rlx.numpy as jnp
    >>> jnp.einsum("ij,j->i", jnp.ones((2, 3)), jnp.arange(3.0))
    Array([3., 3.], dtype=float32)
    """
    check_placement(None, out_sharding)
    refuse_out("einsum", out)
    terms, output, arrays = _parse((subscripts, *operands))
    arrays = promote("einsum", *arrays)
    if asks_for_parts(out_sharding):
        module = sums_in_parts()
        arrays, names, sharding = module.split_in_parts("einsum", arrays, terms, output, out_sharding)
        letters = _unused(terms, len(names))
        text = f"{','.join(letters + term for term in terms)}->{letters}{output}"
        options = dict(optimize=optimize, precision=precision, preferred_element_type=preferred_element_type)
        return module.of_parts("einsum", einsum(text, *arrays, **options, _dot_general=_dot_general), sharding)
    path = _path(terms, output, arrays, optimize)
    work: list[Term] = [_simplified(x, letters) for x, letters in zip(arrays, terms, strict=True)]
    for step in path:
        taken = [work[i] for i in step]
        work = [t for i, t in enumerate(work) if i not in step]
        needed = set(output).union(*[letters for _, letters in work])
        result = taken[0]
        for position, other in enumerate(taken[1:]):
            later = needed.union(*[letters for _, letters in taken[position + 2 :]])
            result = _pair(result, other, later, precision, preferred_element_type, _dot_general)
        work.append(_summed(result, needed))
    x, letters = _summed(work[0], set(output))
    result = transpose(x, tuple(letters.index(c) for c in output))
    if arrays[0].dtype.kind == "b":
        result = convert_to(result, arrays[0].dtype)
    return result if preferred_element_type is None else convert_to(result, to_dtype(preferred_element_type))


def _unused(terms: list[str], count: int) -> str:
    """Letters that no operand uses."""
    used = set("".join(terms))
    return "".join(islice((letter for letter in map(_opt_einsum().get_symbol, counter()) if letter not in used), count))


def _path(terms: list[str], output: str, arrays: list[Any], optimize: Any) -> list[tuple[int, ...]]:
    if len(arrays) <= 2:
        return [tuple(range(len(arrays)))]
    if optimize is False:
        return [(0, 1)] + [(0, len(arrays) - i) for i in range(2, len(arrays))]
    if not isinstance(optimize, (str, bool)):
        return [tuple(step) for step in optimize if not isinstance(step, str)]
    method = "optimal" if optimize is True else optimize
    equation = f"{','.join(terms)}->{output}"
    path, _ = _opt_einsum().contract_path(equation, *[x.shape for x in arrays], shapes=True, optimize=method)
    return [tuple(step) for step in path]


def _simplified(x: Any, letters: str) -> Term:
    """Diagonals instead of letters that occur twice in one operand."""
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            x = diagonal(x, 0, first, second)
            letters = letters[:first] + letters[first + 1 : second] + letters[second + 1 :] + letter
    return x, letters


def _summed(term: Term, needed: set[str]) -> Term:
    """Without the letters that are no longer needed."""
    x, letters = term
    gone = tuple(i for i, c in enumerate(letters) if c not in needed)
    if not gone:
        return term
    dtype = x.dtype if x.dtype.kind != "b" else None
    return sum_(x, axis=gone, dtype=dtype), "".join(c for c in letters if c in needed)


def _squeezed(term: Term, other: Term) -> Term:
    """Without axes of size 1 that broadcast against the other operand's."""
    x, letters = term
    sizes = dict(zip(other[1], other[0].shape, strict=True))
    gone = tuple(i for i, c in enumerate(letters) if x.shape[i] == 1 and sizes.get(c, 1) != 1)
    if not gone:
        return term
    return shapes.squeeze(x, gone), "".join(c for i, c in enumerate(letters) if i not in gone)


def _pair(first: Term, second: Term, needed: set[str], precision: Any, preferred: Any, dot_general: Any) -> Term:
    """The product of two operands, summed over shared letters that are not needed later."""
    first, second = _squeezed(first, second), _squeezed(second, first)
    first = _summed(first, needed | set(second[1]))
    second = _summed(second, needed | set(first[1]))
    (x, left), (y, right) = first, second
    shared = [c for c in left if c in right]
    batch = [c for c in shared if c in needed]
    over = [c for c in shared if c not in needed]
    contracting = tuple(left.index(c) for c in over), tuple(right.index(c) for c in over)
    together = tuple(left.index(c) for c in batch), tuple(right.index(c) for c in batch)
    if dot_general is None:
        product = contract(x, y, contracting, together, precision, preferred)
    else:
        product = dot_general(x, y, (contracting, together), precision=precision, preferred_element_type=preferred)
    rest = [c for c in left if c not in shared] + [c for c in right if c not in shared]
    return product, "".join(batch + rest)


def einsum_path(subscripts: Any, /, *operands: Any, optimize: Any = "auto") -> tuple[list[Any], Any]:
    """The order in which einsum would contract, as JAX returns it: NumPy's list begins with "einsum_path".

    Args: as `einsum`. Returns: (path, a description by opt_einsum).

    >>> import rlx.numpy as jnp
    >>> jnp.einsum_path("ij,jk->ik", jnp.ones((2, 2)), jnp.ones((2, 2)))[0]
    [(0, 1)]
    """
    terms, output, arrays = _parse((subscripts, *operands))
    method = "optimal" if optimize is True else optimize
    path, info = _opt_einsum().contract_path(
        f"{','.join(terms)}->{output}", *[x.shape for x in arrays], shapes=True, optimize=method
    )
    return list(path), info
