"""Bok, Su & Altschuler 2024: formulas of theirs that no theorem here needs, beside `lethe.theorems.literature.bok_2024`."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from lethe.calculus.rounding import MOST_COUNT, count_above


def gd_domain_printed_mu(diameter: float, touch: float) -> float:
    r"""The closed form of the paper, stated for $T \ge D/s$ steps.

    $$\mu = \frac1\tau\sqrt{3sD + s^2\lceil D/s\rceil}
      = \frac1\sigma\sqrt{\frac{3LD}{\eta n} + \frac{L^2}{n^2}\Big\lceil\frac{Dn}{\eta L}\Big\rceil}$$

    Args:
        diameter: $D/s$, in units of one touch; finite.
        touch: $s/\tau > 0$; $L/(n\sigma)$ in the paper.
    Returns:
        $\mu$, not rounded outward.
    Reference: Bok, Su, Altschuler 2024, arXiv:2403.00278, closed form as in the authors' code.
    """
    return touch * math.sqrt(3.0 * diameter + float(np.ceil(diameter)))


def cgd_domain_passes(diameter: float, batches_per_pass: int) -> int:
    r"""$E^* = \lceil(\mu^* b\sigma/L)^2\rceil$, the passes from which on `cgd_domain_printed_mu` is below composition.

    The authors' script for their table of it multiplies two terms where it should add them, and prints smaller numbers.

    Args, Reference: those of `cgd_domain_printed_mu`.
    """
    # The square itself, not that of a rounded root: a whole number must stay one.
    return int(count_above(1.0 + (3.0 * diameter + float(np.ceil(diameter))) / batches_per_pass, MOST_COUNT))


def sgd_clt_mu(probability: float, steps: int, touch: float) -> float:
    r"""APPROXIMATION, not a bound: the $\mu$ that $C_p(G(\mu_0))^{\otimes T}$ tends to by the central limit theorem.

    $$\mu \approx \sqrt2\,p\sqrt T\sqrt{e^{\mu_0^2}\Phi(3\mu_0/2) + 3\Phi(-\mu_0/2) - 2}$$

    The authors plot it. It may be above or below the composition it stands for, so no theorem here uses it.

    Args:
        probability: $p = b/n$.
        steps: $T \ge 1$.
        touch: $\mu_0 = L/(b\sigma)$, at most 26.
    Reference: Bu, Dong, Long, Su 2019, arXiv:1911.11607; as in the authors' code.
    """
    spread = math.exp(touch * touch) * float(special.ndtr(1.5 * touch)) + 3.0 * float(special.ndtr(-0.5 * touch)) - 2.0
    return math.sqrt(2.0) * probability * math.sqrt(steps) * math.sqrt(spread)
