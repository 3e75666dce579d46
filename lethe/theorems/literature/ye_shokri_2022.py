r"""Ye, Shokri 2022: the last iterate of mini-batch noisy gradient descent on strongly convex losses, batches fixed by one shuffle.

$\kappa$ is the strong convexity, s how far the record moves a step, $\tau$ a step's noise, B the batches a pass. Kept to compare:
`lethe.compare` shows it beside Lethe's own bounds, and `certify` tries it only if asked by name.
"""

import math
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.guarantees import ZCDP, RDPCurve
from lethe.calculus.rounding import above, square_above
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.theorems import requirements as require
from lethe.theorems.base import Bound, Theorem
from lethe.theorems.citations import cite

_ORDERS = 1.0 + np.geomspace(1e-4, 1e5, 600)
# Batches nearer to the end of a pass than this are told apart; farther ones lie in groups a thousandth wide, each as bad as its worst.
_TOLD_APART = 4096

_CITATION = cite("ye-shokri-2022")


def single_touch(contraction: float, steps: ArrayLike) -> Array:
    r"""The share of one touch's Rényi divergence that remains after j contracting noisy steps, its own step included.

    $$\theta_c(j) = \frac{c^{2(j-1)}(1-c^2)}{1-c^{2j}},\qquad c = 1 - \lambda\kappa$$

    $\lambda\kappa$ in (0, 1) is step size times strong convexity; $j \ge 1$ has any shape. About $1/j$ where $j\lambda\kappa$ is small; not
    rounded outward. Reference: as for `position_rhos`.
    """
    rate, count = _rate(contraction), np.asarray(steps, dtype=np.float64)
    return np.asarray(np.exp(-2.0 * rate * (count - 1.0)) * (math.expm1(-2.0 * rate) / np.expm1(-2.0 * rate * count)))


def earlier_passes(contraction: float, batches: int, passes: int) -> float:
    r"""The contribution of all passes but the last, in units of $\alpha s^2/2\tau^2$; B batches a pass, $h = \lfloor B/2\rfloor$.

    $$\theta_c(h)\,\frac{1 - c^{2(K-1)(B-h)}}{1 - c^{2(B-h)}}$$

    $B \ge 2$ if $K > 1$; 0 for $K = 1$. Reference: as for `position_rhos`.
    """
    if passes == 1:
        return 0.0
    half = batches // 2
    decay = -2.0 * _rate(contraction) * (batches - half)
    return float(single_touch(contraction, half)) * (math.expm1((passes - 1) * decay) / math.expm1(decay))


def position_rhos(run: Run) -> Array:
    r"""$\rho_j$ of $\epsilon_j(\alpha) = \rho_j\alpha$ for a record in batch $j = 1..B$, shape (B,): all passes together.

    $$\rho_j = \frac{s^2}{2\tau^2}\Big[\theta_c(h)\,\frac{1 - c^{2(K-1)(B-h)}}{1 - c^{2(B-h)}} + \theta_c(B-j+1)\Big]$$

    Reference: Ye, Shokri 2022, arXiv:2203.05363 (statement reconstructed).
    """
    contraction, batches = _contraction(run), run.steps_per_pass
    earlier = earlier_passes(contraction, batches, run.total_steps // batches)
    return _unit(run) * (earlier + single_touch(contraction, np.arange(batches, 0, -1)))


class YeShokri2022(Theorem):
    r"""Batches fixed by one secret shuffle, strongly convex losses: the log-mean-exp over the batch the record fell in.

    $$\epsilon(\alpha) = \frac{\alpha s^2}{2\tau^2}\,\theta_c(h)\frac{1-c^{2(K-1)(B-h)}}{1-c^{2(B-h)}}
      + \frac1{\alpha-1}\log\frac1B\sum_{j=1}^{B} e^{(\alpha-1)\frac{\alpha s^2}{2\tau^2}\theta_c(j)}$$

    Every pass but the last pays one touch over the $h = \lfloor B/2\rfloor$ steps that follow it, and contracts over the other B - h of
    the B steps to the next touch; the proof works for every h from 1 to B, odd B included. Sound also because $\rho_j$ is never below
    the optimal shift of its position. One batch a pass leaves h = 0, at which the formula says nothing.
    """

    name: ClassVar[str] = "ye-shokri-2022"
    statement: ClassVar[str] = (
        "Strongly convex losses and batches fixed by one secret shuffle: contraction between touches, mean over batches."
    )
    formula: ClassVar[str] = (
        r"\epsilon(\alpha) = \frac{\alpha s^2}{2\tau^2}\theta_c(h)\frac{1-c^{2(K-1)(B-h)}}{1-c^{2(B-h)}}"
        r" + \frac{1}{\alpha-1}\log\frac1B\sum_{j=1}^{B} e^{(\alpha-1)\frac{\alpha s^2}{2\tau^2}\theta_c(j)}"
    )
    needs: ClassVar[str] = (
        "batches shuffled once, whole passes, strongly convex smooth losses, no clipping, step size below 2/(M + m), constant noise"
    )
    citations: ClassVar[tuple[Citation, ...]] = (_CITATION,)

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (
            require.last_iterate(run),
            require.design(run, ("shuffled_once",), "one shuffle fixes all batches"),
            *_contracting(run),
            require.secrecy(run),
        )

    def _bound(self, run: Run) -> Bound:
        contraction, batches, unit = _contraction(run), run.steps_per_pass, _unit(run)
        earlier = earlier_passes(contraction, batches, run.total_steps // batches)
        steps, weights = _groups(batches)
        touches = single_touch(contraction, steps)
        values = [unit * order * earlier + _log_mean_exp(order - 1.0, unit * order * touches, weights) for order in _ORDERS.tolist()]
        return Bound(guarantee=RDPCurve(tuple(_ORDERS.tolist()), tuple(above(values, 1e-12).tolist())))


class YeShokri2022FixedOrder(Theorem):
    r"""`YeShokri2022` for batches in a fixed order: its worst term, the record in the last batch, in place of the log-mean-exp.

    $$\epsilon(\alpha) = \frac{\alpha s^2}{2\tau^2}\Big[\theta_c(h)\frac{1-c^{2(K-1)(B-h)}}{1-c^{2(B-h)}} + 1\Big]$$
    """

    name: ClassVar[str] = "ye-shokri-2022-fixed-order"
    statement: ClassVar[str] = "Strongly convex losses and batches in a fixed order: contraction between touches, worst batch."
    formula: ClassVar[str] = (
        r"\epsilon(\alpha) = \frac{\alpha s^2}{2\tau^2}\left[\theta_c(h)\frac{1-c^{2(K-1)(B-h)}}{1-c^{2(B-h)}} + 1\right]"
    )
    needs: ClassVar[str] = (
        "cyclic batches, whole passes, strongly convex smooth losses, no clipping, step size below 2/(M + m), constant noise"
    )
    citations: ClassVar[tuple[Citation, ...]] = (_CITATION,)

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (
            require.last_iterate(run),
            require.design(run, ("cyclic",), "fixed, disjoint, every record once a pass; worst batch"),
            *_contracting(run),
        )

    def _bound(self, run: Run) -> Bound:
        batches = run.steps_per_pass
        earlier = earlier_passes(_contraction(run), batches, run.total_steps // batches)
        return Bound(guarantee=ZCDP(float(above(_unit(run) * (earlier + 1.0), 1e-12))))


def _contracting(run: Run) -> tuple[Finding, ...]:
    """Strongly convex losses and a step that contracts."""
    weak, smooth = run.loss.curvature if run.loss.curvature is not None else (0.0, 0.0)
    total = smooth - weak
    return (
        require.whole_passes(run),
        _two_batches(run),
        require.gradient_bound(run),
        require.strongly_convex(run),
        require.unclipped(run),
        require.step_at_most(run, 2.0 / total if total > 0 else math.inf, "2/(smoothness + strong convexity)", strictly=True),
        require.constant_noise_and_step(run),
    )


def _two_batches(run: Run) -> Finding:
    """A pass must have two batches or more."""
    if run.steps_per_pass > 1 or run.total_steps == 1:
        return holds("batches a pass", f"{run.steps_per_pass}; half of a pass lies between two touches")
    return fails(
        "batches a pass",
        "it spends half of the batches of a pass on each touch, so it needs at least 2 batches a pass; there is 1",
        source=f"records = {run.records}, batches.size = {run.batch_size}",
        remedy="take smaller batches, or use optimal-shift.",
    )


def _contraction(run: Run) -> float:
    r"""$\lambda\kappa$, step size times strong convexity."""
    assert run.loss.curvature is not None  # examine has refused the rest
    return float(run.step_sizes[0]) * -run.loss.curvature[0]


def _unit(run: Run) -> float:
    """s^2 / (2 tau^2)."""
    return 0.5 * float(square_above(1.0 / float(run.relative_noise[0])))


def _rate(contraction: float) -> float:
    """-log c. The step size is below 1/kappa, but their product may round to 1, and a tiny one to 0."""
    return -math.log1p(-min(max(contraction, 1e-300), 1.0 - 2.0**-53))


def _groups(batches: int) -> tuple[Array, Array]:
    """Steps from touch to end, and the share of batches with as many, or up to a thousandth more."""
    firsts = np.arange(1, min(batches, _TOLD_APART) + 1, dtype=np.float64)
    if batches > _TOLD_APART:
        count = 1 + int(1000 * math.log(batches / _TOLD_APART))
        firsts = np.unique(np.concatenate((firsts, np.floor(np.geomspace(_TOLD_APART, batches, count)))))
    return firsts, np.diff(np.append(firsts, batches + 1.0)) / batches


def _log_mean_exp(factor: float, values: Array, weights: Array) -> float:
    """(1 / factor) log sum w exp(factor x) for x >= 0 and weights that sum to 1, where the mean is near 1 and where exp overflows."""
    exponents = factor * values
    largest = float(exponents.max())
    if largest < 1.0:
        return math.log1p(float(weights @ np.expm1(exponents))) / factor
    return (largest + math.log(float(weights @ np.exp(exponents - largest)))) / factor
