"""rlx.numpy: NumPy's functions on immutable arrays, with JAX's conventions."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from rlx.numpy.names import FUNCTIONS as _FUNCTIONS
from rlx.offered_names import offer_names as _offer_names

__array_api_version__ = "2024.12"

__all__ = [
    "__array_api_version__",
    "__array_namespace_info__",
    "bool",
    "fft",
    "linalg",
    "poly",
    "polyfit",
    "roots",
]

if _TYPE_CHECKING:  # imported on first use
    from rlx.numpy import (
        calculus,
        comparing,
        counting,
        creation,
        cumulative,
        dtypes,
        editing,
        einsums,
        elementwise,
        files,
        floats,
        functional,
        grids,
        joining,
        lookups,
        manipulation,
        matrices,
        nan_reductions,
        padding,
        polynomials,
        powers,
        printing,
        products,
        quantiles,
        ranges,
        reductions,
        rounding,
        searching,
        selection,
        sets,
        signals,
        sorting,
        standard_ufuncs,
        statistics,
        ufuncs,
    )
    from rlx.numpy import fft as fft
    from rlx.numpy import linalg as linalg
    from rlx.numpy.calculus import *
    from rlx.numpy.comparing import *
    from rlx.numpy.counting import *
    from rlx.numpy.creation import *
    from rlx.numpy.cumulative import *
    from rlx.numpy.dtypes import *
    from rlx.numpy.editing import *
    from rlx.numpy.einsums import *
    from rlx.numpy.elementwise import *
    from rlx.numpy.files import *
    from rlx.numpy.fitting import poly as poly
    from rlx.numpy.fitting import polyfit as polyfit
    from rlx.numpy.fitting import roots as roots
    from rlx.numpy.floats import *
    from rlx.numpy.functional import *
    from rlx.numpy.grids import *
    from rlx.numpy.inspection import namespace_info as __array_namespace_info__
    from rlx.numpy.joining import *
    from rlx.numpy.lookups import *
    from rlx.numpy.manipulation import *
    from rlx.numpy.matrices import *
    from rlx.numpy.nan_reductions import *
    from rlx.numpy.padding import *
    from rlx.numpy.polynomials import *
    from rlx.numpy.powers import *
    from rlx.numpy.printing import *
    from rlx.numpy.products import *
    from rlx.numpy.quantiles import *
    from rlx.numpy.ranges import *
    from rlx.numpy.reductions import *
    from rlx.numpy.rounding import *
    from rlx.numpy.searching import *
    from rlx.numpy.selection import *
    from rlx.numpy.sets import *
    from rlx.numpy.signals import *
    from rlx.numpy.sorting import *
    from rlx.numpy.standard_ufuncs import *
    from rlx.numpy.statistics import *
    from rlx.numpy.ufuncs import *

    bool = bool_
    __all__ += calculus.__all__
    __all__ += comparing.__all__
    __all__ += counting.__all__
    __all__ += creation.__all__
    __all__ += cumulative.__all__
    __all__ += dtypes.__all__
    __all__ += editing.__all__
    __all__ += einsums.__all__
    __all__ += elementwise.__all__
    __all__ += files.__all__
    __all__ += floats.__all__
    __all__ += functional.__all__
    __all__ += grids.__all__
    __all__ += joining.__all__
    __all__ += lookups.__all__
    __all__ += manipulation.__all__
    __all__ += matrices.__all__
    __all__ += nan_reductions.__all__
    __all__ += padding.__all__
    __all__ += polynomials.__all__
    __all__ += powers.__all__
    __all__ += printing.__all__
    __all__ += products.__all__
    __all__ += quantiles.__all__
    __all__ += ranges.__all__
    __all__ += reductions.__all__
    __all__ += rounding.__all__
    __all__ += searching.__all__
    __all__ += selection.__all__
    __all__ += sets.__all__
    __all__ += signals.__all__
    __all__ += sorting.__all__
    __all__ += standard_ufuncs.__all__
    __all__ += statistics.__all__
    __all__ += ufuncs.__all__
else:
    __all__ += [name for names in _FUNCTIONS.values() for name in names.split()]

_offer_names(
    globals(),
    {name: f"rlx.numpy.{module}" for module, names in _FUNCTIONS.items() for name in names.split()}
    | {name: f"rlx.numpy.{name}" for name in ("fft", "linalg")}
    | dict.fromkeys(("poly", "polyfit", "roots"), "rlx.numpy.fitting")
    | {"bool": "rlx.numpy.dtypes:bool_", "__array_namespace_info__": "rlx.numpy.inspection:namespace_info"},
)
