"""Distance of a guarantee from a privacy target."""

from __future__ import annotations

import math

import numpy as np

from lethe.calculus.composition import renyi_at
from lethe.calculus.conversions import gdp_rho
from lethe.calculus.domains import outside
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, GDPMixture, Guarantee, RDPCurve, Tightest, WithSlack


def require_target(target: Guarantee) -> Guarantee:
    """`target` itself if noise can be calibrated to it.

    Raises:
        InputError: it is no guarantee, of a kind no noise is calibrated to, or one that only infinite noise meets, or any noise.
    """
    size = (
        target.epsilon_bound
        if isinstance(target, ApproxDP)
        else target.mu
        if isinstance(target, GDP)
        else target.rho
        if isinstance(target, ZCDP)
        else min(target.values)
        if isinstance(target, RDPCurve)
        else math.nan
    )
    if not 0.0 < size < math.inf or (isinstance(target, ApproxDP) and target.delta_bound >= 1.0):
        shown = target.describe() if isinstance(target, Guarantee) else target  # pyright: ignore[reportUnnecessaryIsInstance]
        raise outside("target", shown, "an (epsilon, delta), mu-GDP, rho-zCDP or Rényi curve, finite and above 0")
    return target


def overshoot(guarantee: Guarantee, target: Guarantee) -> float:
    r"""By what factor the guarantee exceeds the target, in the target's own unit: $\epsilon$ at its $\delta$, $\mu$, $\rho$, or the largest
    ratio of Rényi divergences over its orders. At most 1 if and only if the guarantee is seen to imply the target; inf if nothing is.

    Raises:
        InputError: as `require_target`.
    """
    require_target(target)
    if isinstance(target, ApproxDP):
        return guarantee.epsilon(target.delta_bound) / target.epsilon_bound
    if isinstance(target, GDP):
        return gaussian_mu(guarantee) / target.mu
    if isinstance(target, ZCDP):
        return concentrated_rho(guarantee) / target.rho
    assert isinstance(target, RDPCurve)
    values = renyi_at(guarantee, np.asarray(target.orders))
    if values is None:
        return math.inf
    limits = np.asarray(target.values)
    binding = np.isfinite(limits)
    return float((values[binding] / limits[binding]).max(initial=0.0))


def gaussian_mu(guarantee: Guarantee) -> float:
    r"""The smallest $\mu$ for which the guarantee is seen to be $\mu$-GDP; inf if for none.

    A mixture whose component is drawn in the same way on both sides is no easier to tell apart than its worst component.
    """
    if isinstance(guarantee, GDP):
        return guarantee.mu
    if isinstance(guarantee, GDPMixture):
        return max((mu for mu, weight in zip(guarantee.mus, guarantee.weights, strict=True) if weight > 0.0), default=0.0)
    if isinstance(guarantee, Tightest):
        return min(gaussian_mu(part) for part in guarantee.parts)
    if isinstance(guarantee, WithSlack) and guarantee.slack == 0.0:
        return gaussian_mu(guarantee.guarantee)
    return math.inf


def concentrated_rho(guarantee: Guarantee) -> float:
    r"""The smallest $\rho$ for which the guarantee is seen to be $\rho$-zCDP; inf if for none."""
    if isinstance(guarantee, ZCDP):
        return guarantee.rho
    if isinstance(guarantee, Tightest):
        return min(concentrated_rho(part) for part in guarantee.parts)
    return gdp_rho(gaussian_mu(guarantee))
