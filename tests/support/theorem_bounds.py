"""Numbers of what a theorem says of a run, and the exact divergence that several of them are compared with."""

import numpy as np
from scipy import special, stats

import lethe
from lethe.calculus.guarantees import WithSlack
from lethe.theorems.base import Theorem


def mu_of(theorem: Theorem, run: lethe.Run) -> float:
    guarantee = theorem.bound(run).guarantee
    assert isinstance(guarantee, lethe.guarantees.GDP)
    return guarantee.mu


def rho_of(theorem: Theorem, run: lethe.Run) -> float:
    guarantee = theorem.bound(run).guarantee
    assert isinstance(guarantee, lethe.guarantees.ZCDP)
    return guarantee.rho


def curve_of(theorem: Theorem, run: lethe.Run) -> tuple[np.ndarray, np.ndarray]:
    """Orders and values, of zCDP at whole orders."""
    guarantee = theorem.bound(run).guarantee
    if isinstance(guarantee, WithSlack):
        guarantee = guarantee.guarantee
    if isinstance(guarantee, lethe.guarantees.ZCDP):
        orders = np.arange(2.0, 200.0)
        return orders, guarantee.rho * orders
    assert isinstance(guarantee, lethe.guarantees.RDPCurve)
    return np.array(guarantee.orders), np.array(guarantee.values)


def sampled_gaussian_renyi(probability: float, noise: float, order: int) -> float:
    """Exact for whole orders: D of (1-q) N(0, z^2) + q N(1, z^2) from N(0, z^2), a binomial sum (Mironov et al. 2019)."""
    k = np.arange(order + 1)
    logs = stats.binom.logpmf(k, order, probability) + (k * k - k) / (2 * noise**2)
    return float(special.logsumexp(logs)) / (order - 1)
