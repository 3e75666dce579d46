"""The theorems of Kong & Ribero 2025 and the runs that they are tried on."""

import numpy as np
from helpers import batches, make_run
from numpy.typing import ArrayLike

import lethe
from lethe.theorems.base import Theorem
from lethe.theorems.literature.kong_ribero_2025 import (
    KongRibero2025BoundedDomain,
    KongRibero2025Clipped,
    KongRibero2025CorollaryCorrected,
    KongRibero2025CorollaryStated,
    KongRibero2025IndependentOfPasses,
    KongRibero2025Unclipped,
)
from lethe.theorems.literature.kong_ribero_setting import Letters

DELTA = 1e-5
DOMAIN, CLIPPED, UNCLIPPED = KongRibero2025BoundedDomain(), KongRibero2025Clipped(), KongRibero2025Unclipped()
STATED, CORRECTED, INDEPENDENT = KongRibero2025CorollaryStated(), KongRibero2025CorollaryCorrected(), KongRibero2025IndependentOfPasses()
THEOREMS = (DOMAIN, CLIPPED, UNCLIPPED, STATED, CORRECTED, INDEPENDENT)
WEAK = {"kind": "weakly_convex", "weak_convexity": 0.05, "smoothness": 0.2, "gradient_bound": 1.0}  # 1/(2(m + M)) = 2
BALL = {"kind": "ball", "radius": 0.05}
RATIO = 2 / 5  # s / sigma of make_run: replace one, z = 5


def rho_of(theorem: Theorem, run: lethe.Run) -> float:
    guarantee = theorem.bound(run).guarantee
    assert isinstance(guarantee, lethe.guarantees.ZCDP)
    return guarantee.rho


def letters(**numbers: object) -> Letters:
    return Letters(**{"clip_norm": 1.0, "noise_std": 1.0, **numbers})


def lipschitz_constant(step_size: ArrayLike, m: ArrayLike, smoothness: ArrayLike) -> np.ndarray:
    return letters(step_size=step_size, weak_convexity=m, smoothness=smoothness).lipschitz("revised")


def theta_by_sum(square: float, steps: int) -> float:
    return square ** (steps - 1) / sum(square**j for j in range(steps))


def curvature_of(run: lethe.Run) -> tuple[float, float]:
    assert run.loss.curvature is not None
    return run.loss.curvature


def random_run(generator: np.random.Generator, **changes: object) -> lethe.Run:
    """A small run that meets the hypotheses of Theorem 2.3 without clipping."""
    m, smoothness = generator.uniform(0.01, 1, 2)
    slots, size = int(generator.integers(1, 6)), int(generator.integers(1, 4))
    fields: dict[str, object] = {
        "records": slots * size,
        "batches": batches(str(generator.choice(["cyclic", "shuffled_once"])), size),
        "steps": int(slots * generator.integers(1, 5) + generator.integers(0, slots)),
        "step_size": float(generator.uniform(0.05, 0.999)) / (m + smoothness),
        "noise_multiplier": float(generator.uniform(0.5, 8)),
        "loss": {"kind": "weakly_convex", "weak_convexity": float(m), "smoothness": float(smoothness), "gradient_bound": 1.0},
        "regulariser": {"kind": "ball", "radius": float(generator.uniform(0.01, 1))},
        "neighbours": str(generator.choice(["replace_one", "zero_out"])),
    }
    return make_run(**{**fields, **changes})


def random_runs(count: int, **changes: object) -> list[lethe.Run]:
    generator = np.random.default_rng(20250101)
    return [random_run(generator, **changes) for _ in range(count)]


RUNS = random_runs(40)


def corollary_run(**changes: object) -> lethe.Run:
    return make_run(loss=WEAK, step_size=2.0, **changes)  # 10 steps a pass >= log 2 / log 1.1 = 7.3
