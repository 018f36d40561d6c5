"""Arguments of special functions: over the ranges that they are used in, by the names in ir.scalar.SPECIAL."""

from __future__ import annotations

import numpy as np

from rlx.ir.scalar import SPECIAL

__all__ = ["DRAWS", "LIMITS", "LOOSE", "close_to_scipy", "drawn"]

# ranges: (lowest, highest) of magnitudes that are spread over all scales, "+-": of both signs; "-": evenly; "n": whole
DRAWS: dict[str, tuple[tuple[str, float, float], ...]] = {
    "gamma": (("-", -20, 170),),
    "digamma": (("-", -20, 20),),
    "polygamma": (("n", 0, 10), ("", 0.05, 1e3)),
    "zeta": (("-", 1.01, 30), ("", 0.05, 1e4)),
    "igamma": (("", 0.01, 1e4), ("", 0.01, 1e4)),
    "igammac": (("", 0.01, 1e4), ("", 0.01, 1e4)),
    "beta": (("", 0.01, 100), ("", 0.01, 100)),
    "log_beta": (("", 0.01, 100), ("", 0.01, 100)),
    "betainc": (("", 0.05, 500), ("", 0.05, 500), ("-", 0, 1)),
    "betaincc": (("", 0.05, 500), ("", 0.05, 500), ("-", 0, 1)),
    "binomial": (("-", 0, 60), ("-", -3, 60)),
    "pochhammer": (("-", 0.1, 50), ("-", -5, 20)),
    "bessel_i0": (("+-", 0.01, 600),),
    "bessel_i1": (("+-", 0.01, 600),),
    "bessel_i0e": (("+-", 0.01, 1e5),),
    "bessel_i1e": (("+-", 0.01, 1e5),),
    "erfcx": (("-", -5, 60),),
    "log_ndtr": (("-", -60, 9),),
    "ndtri": (("", 1e-300, 1),),
    "owens_t": (("+-", 0.01, 9), ("+-", 0.01, 30)),
    "dawson": (("+-", 0.01, 100),),
    "spence": (("", 1e-3, 1e4),),
    "expint_one": (("", 1e-5, 600),),
    "expint_i": (("+-", 1e-3, 600),),
    "expint_n": (("n", 0, 40), ("", 1e-3, 300)),
    "sine_integral": (("+-", 0.01, 1e4),),
    "cosine_integral": (("", 0.01, 1e4),),
    "fresnel_sine": (("+-", 0.01, 100),),
    "fresnel_cosine": (("+-", 0.01, 100),),
    "complex_gamma_real_part": (("-", -6, 30), ("-", -5, 5)),
    "complex_gamma_imaginary_part": (("-", -6, 30), ("-", -5, 5)),
    "complex_loggamma_real_part": (("-", -20, 30), ("-", -20, 20)),
    "complex_loggamma_imaginary_part": (("-", -20, 30), ("-", -20, 20)),
    "complex_digamma_real_part": (("-", -20, 30), ("-", -20, 20)),
    "complex_digamma_imaginary_part": (("-", -20, 30), ("-", -20, 20)),
}
# where SciPy's own functions lose digits: tails that are nearly nothing
LOOSE = {"igamma": 1e-10, "igammac": 2e-11, "betainc": 1e-11, "betaincc": 1e-11, "cosine_integral": 1e-10}
LOOSE["log_beta"] = 1e-11  # near where it is 0
INFINITE = (np.inf, -np.inf, np.nan)
LIMITS: dict[str, tuple[float, ...]] = {
    name: (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -3.5, 1e-30, 700.0, -700.0, *INFINITE)
    for name in "gamma digamma bessel_i0e bessel_i1e erfcx log_ndtr ndtri dawson expint_one expint_i sine_integral"
    " cosine_integral fresnel_sine fresnel_cosine igamma igammac betainc owens_t".split()
}


def drawn(name: str, count: int) -> list[np.ndarray]:
    """So many arguments for a function, an array for each of its operands."""
    random = np.random.default_rng(len(name))
    found = []
    for how, least, most in DRAWS[name]:
        if how in ("-", "n"):
            numbers = random.uniform(least, most, count)
            found.append(np.floor(numbers) if how == "n" else numbers)
            continue
        numbers = np.exp(random.uniform(np.log(least), np.log(most), count))
        found.append(numbers * np.sign(random.normal(size=count)) if how == "+-" else numbers)
    return found


def close_to_scipy(name: str, found: np.ndarray, arrays: list[np.ndarray], tolerance: float) -> None:
    """Within a relative error of SciPy's values; for a part of a complex number, of that number's size."""
    wanted = size = SPECIAL[name].evaluate(*arrays)
    number, _, _ = name.partition("_real_part" if name.endswith("_real_part") else "_imaginary_part")
    if number != name:
        size = np.hypot(*(SPECIAL[f"{number}_{part}"].evaluate(*arrays) for part in ("real_part", "imaginary_part")))
    usual = np.abs(size) > 1e-250  # SciPy's betainc is 0 below
    error, allowed = np.abs(found - wanted)[usual], tolerance * np.maximum(np.abs(size[usual]), 1e-2)
    assert (error <= allowed).all(), (error / allowed).max()
    assert (np.abs(found[~usual]) < 1e-249).all()
