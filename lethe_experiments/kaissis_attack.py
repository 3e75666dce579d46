"""Kaissis et al. 2021: how well the best membership test does against a sequence of Gaussian mechanisms."""

from __future__ import annotations

import math

from scipy import special

from lethe.calculus.rounding import round_up


def roc_auc(index: float) -> float:
    r"""Area under the curve of the best membership test at sensitivity index $\psi$, rounded up.

    $$\mathrm{AUC} = \Phi(\psi/\sqrt2)$$

    It is the chance that a draw from $N(\psi, 1)$ exceeds one from $N(0, 1)$.

    Args:
        index: $\psi \in [0, \infty]$.
    Returns:
        A number in [1/2, 1].
    Reference: Kaissis et al. 2021, arXiv:2109.10528, statement reconstructed.
    """
    return min(round_up(float(special.ndtr(index / math.sqrt(2.0))), 1e-14), 1.0)
