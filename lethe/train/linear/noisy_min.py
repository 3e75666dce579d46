"""Report noisy min: which of several candidates has the smallest total loss, privately."""

from __future__ import annotations

import torch

from lethe.calculus.domains import require_positive


def noisy_min(losses: torch.Tensor, *, bound: float, epsilon: float, touch_factor: float, generator: torch.Generator) -> int:
    r"""The index of the smallest of $q_j + \nu_j$, $\nu_j$ independent Laplace noise of scale $fC/\epsilon$.

    Formal guarantee: let $q_j = \sum_i \ell_{ij}$ with every $\ell_{ij} \in [0, C]$, and release the index alone. It is
    $\epsilon$-DP, so $(\epsilon^2/2)$-zCDP, with f = 1 when one record is zeroed out, added or removed, and with f = 2 when one is
    replaced. (A record that is zeroed out has no gradient: its loss is the same for all candidates, and what is the same for all
    moves no minimum.)
    Proof: on the neighbour $q'_j = q_j + c_j$. Fix an index i and the noise of the others. On the first data set i wins iff
    $\nu_i < m - q_i$ with $m = \min_{j\ne i}(q_j + \nu_j)$; on the second iff $\nu_i < m' - q_i - c_i$, where $m' - m$ lies between the
    least and the largest of the $c_j$. If all of them lie in $[0, C]$, or all in $[-C, 0]$, then the threshold moves by
    $|(m' - m) - c_i| \le C$; if they lie in $[-C, C]$, by at most 2C. The logarithm of a Laplace distribution function of scale b is
    1/b-Lipschitz, so the conditional probability of i changes by at most the factor $e^{\epsilon}$, and so does its mean over the others.
    That $\epsilon$-DP implies $(\epsilon^2/2)$-zCDP is Proposition 1.4 of Bun & Steinke.

    Args:
        losses: $q_j$, shape (K,), float64.
        bound: C > 0, the largest loss of a record.
        epsilon: > 0.
        touch_factor: f, 1 or 2.
        generator: on the device of `losses`.
    Returns:
        An index 0..K-1.
    Raises:
        InputError: `bound` or `epsilon` is not a finite number > 0.
    Reference: Dwork & Roth 2014, section 3.3 (scale C/epsilon for counts, 1 record added); Bun & Steinke 2016, arXiv:1605.02065.
    """
    scale = touch_factor * require_positive("bound", bound) / require_positive("epsilon", epsilon)
    one, other = (torch.empty_like(losses).exponential_(generator=generator) for _ in range(2))
    return int((losses + scale * (one - other)).argmin())  # the difference of two exponentials is Laplace
