r"""Lowy & Razaviyayn 2023, Lemma 35 and Theorem 45: moments of means, the largest of the domain.

$\tilde e_m = E\sup_w\frac1m\sum_i Y_i(w)$, $Y_i(w) = \|\nabla f(w, x_i)\|^k$, which fall to $r^{(k)} = \sup_wE\,Y(w)$ as m grows.

Theorem 45, corrected: let W be compact, $w \mapsto \|\nabla f(w, x)\|$ continuous for almost every x and $\tilde r^{(2k)} < \infty$. Then
$\tilde r_{2k,m} \to r_{2k}$ and $\tilde R_{2k,n} \to r_{2k}$, with 1 for the printed 4, and heavy tails are covered: no sub-exponential
$\|\nabla f\|^{2k}$, which fails at k = 2 for Gaussian gradients already, no bound of the gradients, and no condition on n.

Proof: $\tilde r^{(2k)} < \infty$ is an integrable envelope of a continuous family on a compact set, so by the uniform law of large numbers
(Jennrich 1969) $\sup_w|\frac1m\sum_iY_i(w) - E\,Y(w)| \to 0$ almost surely, and in the mean, since $\frac1m\sum_i\sup_wY_i(w)$, which
dominates it, converges in the mean. Hence $\tilde e_m^{(2k)} \to r^{(2k)}$, and it is never below. For $\tilde R$ dominated convergence,
as printed. How fast depends on the law: `least_squares_bound`. The risk in $r_{2k}$ needs `localised_theory` with `moments` of means in
its radii.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import outside, require_count, require_positive


def mean_moment(powers: ArrayLike, probabilities: ArrayLike, size: int) -> float:
    r"""$\tilde e_m = E\max_w\frac1m\sum_iY_i(w)$ of a law with finitely many records, by going through how often each was drawn.

    powers: $Y(w)$, a row a point w of a finite set, a column a record that there can be; the columns' probabilities; size: m.
    """
    table, chances = np.atleast_2d(np.asarray(powers, dtype=np.float64)), np.asarray(probabilities, dtype=np.float64)
    count, total = require_count("size", size), 0.0
    logarithms = np.log(chances)
    for bars in itertools.combinations(range(count + len(chances) - 1), len(chances) - 1):
        counts = np.diff((-1, *bars, count + len(chances) - 1)) - 1
        weight = math.lgamma(count + 1) - sum(math.lgamma(c + 1) for c in counts) + float(counts @ logarithms)
        total += math.exp(weight) * float((table @ counts).max()) / count
    return total


def weighted_moment(moments: Sequence[float]) -> float:
    r"""$\tilde R_{k,n} = \big(\sum_{i=1}^l2^{-i}\tilde r_{k,n_i}^2\big)^{1/2}$, $n_i = 2^{l-i}$: of n/2 records first, of 1 last."""
    return math.sqrt(math.fsum(0.5**i * moment**2 for i, moment in enumerate(moments, 1)))


def least_squares_bound(order: int, radius: float, raw: float, envelope: float, size: int) -> float:
    r"""$\tilde e_m^{(k)} \le r^{(k)} + (1 + R^2)^{k/2}\sqrt{E[\|z\|^{2k}\|x\|^{2k}]/m}$, k even, for
    $\frac12(\langle w, x\rangle - y)^2$ on $\|w\| \le R$, $z = (x, y)$.

    Proof: with $v = (w, -1)$, $\|\nabla f\|^k = \langle v, z\rangle^k\|x\|^k = \langle v^{\otimes k}, \|x\|^kz^{\otimes k}\rangle$ is
    linear in $v^{\otimes k}$, of norm at most $(1 + R^2)^{k/2}$; the mean of m tensors strays by at most the root, in the mean.

    order: k; raw: $r^{(k)}$; envelope: $E[\|z\|^{2k}\|x\|^{2k}]$; size: m.
    """
    if order % 2:
        raise outside("order", order, "an even number")
    return raw + (1.0 + radius**2) ** (order / 2.0) * math.sqrt(require_positive("envelope", envelope) / require_count("size", size))


def subexponential_norm(values: ArrayLike, probabilities: ArrayLike) -> float:
    r"""$\inf\{s: P(Y \ge t) \le 2e^{-t/s}\ \forall t\}$ of a law with finitely many values (Definition 44)."""
    order = np.argsort(values)
    ordered, chances = np.asarray(values, dtype=np.float64)[order], np.asarray(probabilities, dtype=np.float64)[order]
    tails = np.minimum(np.cumsum(chances[::-1])[::-1], 1.0)
    return float(np.max(ordered / np.log(2.0 / tails)))


def printed_records(norm: float, raw: float, *, smoothness: float, diameter: float, order: float, dimension: int) -> float:
    r"""The n from which Theorem 45's condition holds with q = 1:
    $\max\big\{\frac E{r^{(2k)}}, \big(\frac E{r^{(2k)}}\big)^2\big\}\ln\frac{3nD\beta}{4r_{2k}} \le \frac nd$, E the `subexponential_norm`.

    order: 2k; raw: $r^{(2k)}$.
    """
    ratio, scale = norm / raw, 3.0 * diameter * smoothness / (4.0 * raw ** (1.0 / order))
    needed = n = dimension * max(ratio, ratio**2)
    for _ in range(200):  # a contraction: the right-hand side grows like ln n
        n = needed * max(math.log(scale * n), 1.0)
    return n
