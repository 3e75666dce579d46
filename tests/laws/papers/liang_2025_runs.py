"""The bounds of Liang et al. 2025, the run they are tried on, and their Rényi curves."""

import numpy as np
from helpers import make_run
from scipy import special, stats

import lethe
from lethe.calculus.guarantees import WithSlack
from lethe.theorems.base import Theorem
from lethe.theorems.literature.liang_2025 import (
    Liang2025Bounded,
    Liang2025BoundedRestricted,
    Liang2025Corrected,
    Liang2025Unbounded,
    Liang2025UnboundedRestricted,
)

THEOREMS = (Liang2025Unbounded(), Liang2025UnboundedRestricted(), Liang2025Bounded(), Liang2025BoundedRestricted(), Liang2025Corrected())
LINEAR = {"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0}
SMOOTH = {"kind": "smooth", "smoothness": 0.4, "gradient_bound": 1.0}
# b sigma / C is the noise multiplier, so b sigma / (2C) = 6; step 0.5: tau = 0.5 * 12 / 10.
BASE: dict[str, object] = {
    "batches": {"design": "poisson", "size": 10},
    "neighbours": "add_or_remove",
    "noise_multiplier": 12.0,
    "loss": SMOOTH,
    "regulariser": {"kind": "ball", "radius": 0.03},
}


def liang_run(**changes: object) -> lethe.Run:
    return make_run(**(BASE | changes))


def curve_of(theorem: Theorem, run: lethe.Run) -> tuple[np.ndarray, np.ndarray]:
    """Orders and values."""
    guarantee = theorem.bound(run).guarantee
    if isinstance(guarantee, WithSlack):
        guarantee = guarantee.guarantee
    if isinstance(guarantee, lethe.guarantees.ZCDP):
        orders = np.arange(2.0, 200.0)
        return orders, guarantee.rho * orders
    assert isinstance(guarantee, lethe.guarantees.RDPCurve)
    return np.array(guarantee.orders), np.array(guarantee.values)


def sampled_gaussian(probability: float, noise: float, order: int) -> float:
    """Exact for whole orders: D of (1-q) N(0, z^2) + q N(1, z^2) from N(0, z^2), a binomial sum (Mironov et al. 2019)."""
    k = np.arange(order + 1)
    logs = stats.binom.logpmf(k, order, probability) + (k * k - k) / (2 * noise**2)
    return float(special.logsumexp(logs)) / (order - 1)
