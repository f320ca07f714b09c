"""Noise: normals beside NumPy's and torch's, discrete Gaussians beside OpenDP's; one thread."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from tacit.entropy import Entropy
from tacit.kernels.normals import KEY_BYTES, Normals, fill_from_library
from tacit.privacy.noise.distributions import DiscreteGaussian, DiscreteLaplace
from tacit_lab.bench.measurement import Measurement, SuiteProgress, interleaved_seconds

SIZE, ROUNDS = 2**22, 9
DOUBLINGS = tuple(2**power for power in range(16, 24))
SAMPLES, OPENDP_SAMPLES = 10**6, 2000
STDDEV = 100


def run(progress: SuiteProgress) -> list[Measurement]:
    parts: list[Callable[[Entropy], list[Measurement]]] = [
        partial(normals, dtype=np.dtype(np.float32)),
        partial(normals, dtype=np.dtype(np.float64)),
        growth,
        discrete,
    ]
    entropy = Entropy()
    return [measured for part in progress(parts, "noise") for measured in part(entropy)]


def normals(entropy: Entropy, dtype: np.dtype[Any]) -> list[Measurement]:
    """Fill one array by each contestant in turn; a ratio is the peer's time over ours."""
    out: Normals = np.empty(SIZE, dtype=dtype)
    generator = np.random.default_rng(1)
    contestants: dict[str, Callable[[], object]] = {
        "tacit": partial(entropy.normal, out=out),
        "library": partial(_from_library, out),
        "numpy": partial(generator.standard_normal, dtype=dtype.type, out=out),
    }
    if _is_installed("torch"):
        contestants["torch"] = _torch_normals(dtype)
    seconds = interleaved_seconds(contestants, ROUNDS)
    settings = f"{SIZE} normals, 1 thread, median of {ROUNDS} interleaved rounds"
    name = f"normals_{dtype.name}"

    def per_normal(contestant: str) -> float:
        return seconds[contestant] / SIZE * 1e9

    return [
        Measurement(f"{name}_vs_numpy", seconds["numpy"] / seconds["tacit"], "x", bar=2.0, settings=settings),
        Measurement(f"{name}_vs_torch", seconds["torch"] / seconds["tacit"], "x", settings=settings)
        if "torch" in seconds
        else _not_measured(f"{name}_vs_torch", "torch"),
        Measurement(f"{name}_ns", per_normal("tacit"), "ns", settings=f"{settings}, keystream included"),
        Measurement(
            f"{name}_library_ns", per_normal("library"), "ns", settings=f"{settings}, keystream by OpenSSL"
        ),
    ]


def growth(entropy: Entropy) -> list[Measurement]:
    """How much longer twice as many normals take: 2 is linear."""
    arrays = {size: np.empty(size, dtype=np.float32) for size in DOUBLINGS}
    seconds = interleaved_seconds(
        {str(size): partial(entropy.normal, out=arrays[size]) for size in DOUBLINGS}, ROUNDS
    )
    steps = [seconds[str(2 * size)] / seconds[str(size)] for size in DOUBLINGS[:-1]]
    each = ", ".join(f"{seconds[str(size)] / size * 1e9:.2f}" for size in DOUBLINGS)
    settings = f"{DOUBLINGS[0]} to {DOUBLINGS[-1]} float32 normals, doubling; ns each: {each}"
    return [
        Measurement(
            "normals_float32_worst_doubling", max(steps), "x", bar=2.5, at_least=False, settings=settings
        )
    ]


def discrete(entropy: Entropy) -> list[Measurement]:
    """Exact discrete noise on whole counts."""
    gaussian, laplace = DiscreteGaussian(Fraction(STDDEV**2)), DiscreteLaplace(Fraction(STDDEV))
    contestants: dict[str, Callable[[], object]] = {
        "gaussian": partial(gaussian.sample_array, SAMPLES, entropy.words),
        "laplace": partial(laplace.sample_array, SAMPLES, entropy.words),
    }
    if _is_installed("opendp"):
        contestants["opendp"] = _opendp_gaussian()
    seconds = interleaved_seconds(contestants, ROUNDS)
    settings = f"{SAMPLES} samples at scale {STDDEV}, 1 thread, keystream included"
    measured = [
        Measurement(
            f"discrete_{law}_ns", seconds[law] / SAMPLES * 1e9, "ns", bar=50, at_least=False, settings=settings
        )
        for law in ("gaussian", "laplace")
    ]
    if "opendp" not in seconds:
        return [*measured, _not_measured("discrete_gaussian_vs_opendp", "opendp")]
    ratio = (seconds["opendp"] / OPENDP_SAMPLES) / (seconds["gaussian"] / SAMPLES)
    compared = f"{settings}; OpenDP's vector of {OPENDP_SAMPLES} at once, time per sample"
    return [*measured, Measurement("discrete_gaussian_vs_opendp", ratio, "x", settings=compared)]


def _from_library(out: Normals) -> None:
    """As on machines where the kernel cannot make its own keystream."""
    fill_from_library(out, os.urandom(KEY_BYTES), 1.0)


def _torch_normals(dtype: np.dtype[Any]) -> Callable[[], object]:
    import torch

    torch.set_num_threads(1)
    tensor = torch.empty(SIZE, dtype=torch.float32 if dtype == np.float32 else torch.float64)
    return partial(tensor.normal_)


def _opendp_gaussian() -> Callable[[], object]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    measure = dp.m.make_gaussian(
        dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=int), scale=float(STDDEV)
    )
    return partial(measure, [0] * OPENDP_SAMPLES)


def _is_installed(package: str) -> bool:
    return find_spec(package) is not None


def _not_measured(name: str, package: str) -> Measurement:
    return Measurement(name, math.nan, "x", settings=f"not measured: {package} is not installed")
