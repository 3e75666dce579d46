"""Bok, Su & Altschuler 2024: what their table of bounded domains prints, beside `lethe.theorems.literature.bok_2024`."""

from __future__ import annotations

import math

import numpy as np

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
