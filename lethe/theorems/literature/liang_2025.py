r"""Liang et al. 2025: DP-SGD with smooth losses, unbounded and bounded domains; two of its four bounds are false as stated.

Kept to compare: `lethe.compare` shows it beside Lethe's own bounds, and `certify` tries it only if asked by name. Symbols: C bounds a
gradient, b is the batch size, n the number of records, $\sigma$ the noise of a step, L the gradient's Lipschitz constant; $\beta$ shares
the noise between hiding the draw and hiding how far apart two runs were.
"""

import math
from abc import ABC
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import FloatArray
from lethe.calculus.guarantees import ZCDP, Guarantee, RDPCurve, WithSlack
from lethe.calculus.rounding import raised, round_up
from lethe.calculus.sampled.order import LARGEST_PROBABILITY, SMALLEST_NOISE, largest_order, smallest_noise
from lethe.calculus.sampled.renyi import ORDERS, renyi_values
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation
from lethe.run.run import Run
from lethe.theorems import requirements as require
from lethe.theorems.base import SOUND, Bound, Standing, Theorem
from lethe.theorems.citations import cite
from lethe.theorems.steps import largest_batch

# A relative rounding larger than the dozen operations of any formula here can make.
_ROUNDING = 1e-14
# Orders for closed forms: alpha - 1 from 1e-3 to 1e12, 6 % apart.
_GRID = 1.0 + np.geomspace(1e-3, 1e12, 601)
# Shares of the noise, even in the logit: the best lies near 0 on a wide domain and near 1 on a narrow one.
_SHARES = 1.0 / (1.0 + np.exp(-np.linspace(-14.0, 14.0, 113)))
_PAPER = (
    "Liang, Zhang, He, Wu, Xing 2025, An improved privacy and utility analysis of differentially private SGD with bounded domain and "
    "smooth losses, arXiv:2502.17772"
)


def relative_noise(run: Run) -> float:
    r"""$z' = b\sigma/(2C)$, the noise of the sum in units of twice the gradient bound.

    The paper counts a record as added or removed, which moves the sum by C only, and still uses 2C; this is the paper's number.
    """
    return 0.5 * float(run.record_noise[0])


def _shift_cost(run: Run, records: int | None = None) -> float:
    r"""$\rho$ of hiding, in the noise of one step, that the two runs were a diameter apart before it.

    $$\rho = \frac{(1 + \lambda L K/b)^2 D^2}{2\tau^2}$$

    K is how many records the batch may hold, by default b, as in the paper. Rounded up.
    """
    return 0.5 * _square(_expansion(run, records) * run.diameter / float(run.noise_stds[0]))


def split_rho(first: ArrayLike, second: float, smallest_share: ArrayLike = 0.0) -> FloatArray:
    r"""$\min_\beta\{A/\beta + B/(1-\beta)\}$ over $\beta_0 \le \beta < 1$, elementwise.

    $(\sqrt A + \sqrt B)^2$ at $\beta = \sqrt A/(\sqrt A + \sqrt B)$; where that is below $\beta_0$, the value at $\beta_0$. $A, B > 0$;
    from $\beta_0 = 1$ on the minimum is infinite.
    """
    a, low = np.broadcast_arrays(np.asarray(first, dtype=np.float64), np.asarray(smallest_share, dtype=np.float64))
    root, second_root = np.sqrt(a), math.sqrt(second)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        best = root / (root + second_root)
        share = np.clip(low, 0.0, 1.0 - 2.0**-53)
        values = np.where(low <= best, np.square(root + second_root), a / share + second / (1.0 - share)) * (1.0 + _ROUNDING)
    return np.where((low >= 1.0) | np.isnan(values), np.inf, values)


class _Liang(Theorem, ABC):
    """What all of them share: Poisson batches, one record more or less, last iterate."""

    def _common(self, run: Run) -> tuple[Finding, ...]:
        """The hypotheses of all of them."""
        return (
            require.last_iterate(run),
            require.design(run, ("poisson",), "drawn afresh at each step, divided by the nominal size"),
            require.relation(run, ("add_or_remove", "zero_out")),
            require.secrecy(run),
            require.each_gradient_bounded(run),
            require.constant_noise_and_step(run),
        )


class Liang2025Unbounded(_Liang):
    r"""Theorem 3.3, equation (12).

    $$\epsilon(\alpha) = \frac{2\alpha C^2 T}{\beta n b\sigma^2} \to \frac{\alpha q T}{2 z'^2},\qquad z' = b\sigma/(2C),\ \beta \to 1$$

    False: the proof uses convexity in the second argument, which covers one direction of the two. The other has the record in the first
    argument, where a rare draw is raised to the power of the order. The proof uses neither smoothness nor a domain, nor does this.
    """

    name: ClassVar[str] = "liang-2025-3.3"
    statement: ClassVar[str] = "The loss of a step without sampling, times the sampling probability, at every order (false)."
    formula: ClassVar[str] = r"\epsilon(\alpha) = \frac{2\alpha C^2 T}{\beta n b\sigma^2}"
    needs: ClassVar[str] = "Poisson batches, a record added or removed, constant noise"
    citations: ClassVar[tuple[Citation, ...]] = (Citation(key="liang-2025", text=f"{_PAPER}, Theorem 3.3, equation (12)."),)
    standing: ClassVar[Standing] = Standing(
        soundness="refuted", why="its proof covers one direction; the other is larger, already for one step of a linear loss"
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return self._common(run)

    def _bound(self, run: Run) -> Bound:
        return Bound(guarantee=ZCDP(round_up(run.total_steps * _unsampled_rate(run), _ROUNDING)))


class Liang2025UnboundedRestricted(_Liang):
    r"""Theorem 3.3, equation (13).

    $$\epsilon(\alpha) = \frac{8\alpha C^2 T}{\beta n^2\sigma^2} \to\frac{2\alpha q^2 T}{z'^2},\quad \alpha \le \alpha^*(q, \sqrt\beta z')$$

    for $q = b/n \le 1/5$ and $\sqrt\beta z' > 4$, with $z' = b\sigma/(2C)$; infinity at other orders. It is composition with the closed
    form of Mironov, Talwar & Zhang 2019, so it holds at $\beta = 1$, which is best. The proof uses neither smoothness nor a domain, nor
    does this.
    """

    name: ClassVar[str] = "liang-2025-3.3-restricted"
    statement: ClassVar[str] = "Composition of sampled steps by a closed form for small orders."
    formula: ClassVar[str] = (
        r"\epsilon(\alpha) = \frac{8\alpha C^2 T}{\beta n^2\sigma^2},\ \alpha \le \alpha^*(b/n, b\sqrt\beta\sigma/(2C))"
    )
    needs: ClassVar[str] = "Poisson batches with b <= n/5, a record added or removed, constant noise above 8C/b"
    citations: ClassVar[tuple[Citation, ...]] = (Citation(key="liang-2025", text=f"{_PAPER}, Theorem 3.3, equation (13)."),)

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (*self._common(run), *_restrictions(run))

    def _bound(self, run: Run) -> Bound:
        rho = run.total_steps * _sampled_rate(run)
        highest = largest_order(run.batch_size / run.records, relative_noise(run))
        orders = np.append(_GRID[highest > _GRID], highest)
        return Bound(guarantee=RDPCurve(tuple(orders.tolist()), tuple((rho * orders * (1.0 + _ROUNDING)).tolist())))


class Liang2025Bounded(_Liang):
    r"""Theorem 3.4, equation (14).

    $$\epsilon(\alpha) = \frac{2\alpha C^2}{\beta nb\sigma^2} + \frac{\alpha(1+\eta L)^2D^2}{2\eta^2\sigma^2(1-\beta)}$$

    minimised over $\beta$. False for the reason of equation (12), which is its first term.
    """

    name: ClassVar[str] = "liang-2025-3.4"
    statement: ClassVar[str] = "One sampled step after two runs a diameter apart, by the false rate of equation (12)."
    formula: ClassVar[str] = (
        r"\epsilon(\alpha) = \frac{2\alpha C^2}{\beta nb\sigma^2} + \frac{\alpha(1+\eta L)^2D^2}{2\eta^2\sigma^2(1-\beta)}"
    )
    needs: ClassVar[str] = "Poisson batches, a record added or removed, smooth losses, a bounded domain, constant noise"
    citations: ClassVar[tuple[Citation, ...]] = (Citation(key="liang-2025", text=f"{_PAPER}, Theorem 3.4, equation (14)."),)
    standing: ClassVar[Standing] = Standing(
        soundness="refuted",
        why="its first term covers one direction only, as in equation (12); already false for one step of linear losses",
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (*self._common(run), require.smooth(run), require.bounded_domain(run))

    def _bound(self, run: Run) -> Bound:
        return Bound(guarantee=ZCDP(round_up(float(split_rho(_unsampled_rate(run), _shift_cost(run))), _ROUNDING)))


class Liang2025BoundedRestricted(_Liang):
    r"""Theorem 3.4, equation (15).

    $$\epsilon(\alpha) = \frac{8\alpha C^2}{\beta n^2\sigma^2} + \frac{\alpha(1+\eta L)^2D^2}{2\eta^2\sigma^2(1-\beta)}$$

    for $\alpha \le \alpha^*(q, \sqrt\beta z')$, $q = b/n \le 1/5$ and $\sqrt\beta z' > 4$, with $z' = b\sigma/(2C)$, minimised over
    $\beta$ at each order. Its factor $1+\eta L$ takes a batch of b records. A Poisson batch of K records, divided by b, expands by up to
    $1 + \eta LK/b$: unless L = 0, the proof does not cover that.
    """

    name: ClassVar[str] = "liang-2025-3.4-restricted"
    statement: ClassVar[str] = "One sampled step, by a closed form for small orders, after two runs a diameter apart."
    formula: ClassVar[str] = (
        r"\epsilon(\alpha) = \frac{8\alpha C^2}{\beta n^2\sigma^2} + \frac{\alpha(1+\eta L)^2D^2}{2\eta^2\sigma^2(1-\beta)},"
        r"\ \alpha \le \alpha^*(b/n, b\sqrt\beta\sigma/(2C))"
    )
    needs: ClassVar[str] = (
        "Poisson batches with b <= n/5, a record added or removed, smooth losses, a bounded domain, constant noise above 8C/b"
    )
    citations: ClassVar[tuple[Citation, ...]] = (Citation(key="liang-2025", text=f"{_PAPER}, Theorem 3.4, equation (15)."),)
    standing: ClassVar[Standing] = Standing(
        soundness="proof-gap",
        why="its 1 + eta L is the expansion of a batch of b records; a Poisson batch may hold more, and is divided by b all the same",
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (*self._common(run), *_restrictions(run), require.smooth(run), require.bounded_domain(run))

    def standing_on(self, run: Run) -> Standing:
        """Sound where the size of a batch does not change how far its step expands."""
        return SOUND if _gradient_lipschitz(run) == 0.0 else self.standing

    def _bound(self, run: Run) -> Bound:
        smallest_share = np.square(smallest_noise(run.batch_size / run.records, _GRID) / relative_noise(run))
        values = _GRID * split_rho(_sampled_rate(run), _shift_cost(run), smallest_share) * (1.0 + _ROUNDING)
        return Bound(guarantee=RDPCurve(tuple(_GRID.tolist()), tuple(values.tolist())))


class Liang2025Corrected(Theorem):
    r"""The bound that the argument of Theorem 3.4 does prove.

    $$\epsilon(\alpha) = \min_\beta\ S_\alpha(q, \sqrt\beta z) + \frac{\alpha(1+\lambda L K/b)^2D^2}{2\tau^2(1-\beta)}$$

    $S_\alpha$ is the Rényi divergence of one sampled Gaussian step in the worse direction, for the run's own relation and sampler, with
    noise z relative to one record's gradient bound (the paper's 2C is not needed for a record added, removed or zeroed out). Batches
    without replacement hold K = b records. Poisson batches hold at most K but for a tiny chance, which is added to $\delta$: whether the
    *other* records overfill a batch is decided by coins that say nothing of the record, so given that they do not, the record is still
    drawn with probability q.
    """

    name: ClassVar[str] = "liang-2025-3.4-corrected"
    statement: ClassVar[str] = "One sampled step after two runs a diameter apart, with the exact loss of that step."
    formula: ClassVar[str] = (
        r"\epsilon(\alpha) = \min_\beta S_\alpha(q, \sqrt\beta z) + \frac{\alpha(1+\lambda L K/b)^2D^2}{2\tau^2(1-\beta)}"
    )
    needs: ClassVar[str] = "Poisson batches or batches without replacement, smooth losses, a bounded domain, constant noise"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(key="liang-2025", text=f"{_PAPER}; corrected here, see docs/theory.md."),
        cite("mironov-2019"),
        cite("lethe", ", docs/theory.md: Rényi divergences of one step, batches of fixed size"),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (
            require.last_iterate(run),
            require.design(run, ("poisson", "without_replacement"), "drawn afresh at each step, divided by the nominal size"),
            require.secrecy(run),
            require.each_gradient_bounded(run),
            require.constant_noise_and_step(run),
            require.smooth(run),
            require.bounded_domain(run),
        )

    def _bound(self, run: Run) -> Bound:
        largest, slack = largest_batch(run)
        noise = float(run.record_noise[0])
        steps = renyi_values(run.batch_size / run.records, noise * np.sqrt(_SHARES), run.neighbours, require.drawn_by(run))
        with np.errstate(over="ignore"):
            shifts = _shift_cost(run, largest) / (1.0 - _SHARES)
            values = (steps + shifts[:, None] * np.array(ORDERS)).min(axis=0)
        curve: Guarantee = RDPCurve(ORDERS, tuple(raised(values, _ROUNDING).tolist()))
        return Bound(guarantee=WithSlack(curve, slack) if slack > 0 else curve)


def _gradient_lipschitz(run: Run) -> float:
    """L; clipping is a projection and does not raise it."""
    assert run.loss.curvature is not None  # refused before
    return max(abs(run.loss.curvature[0]), run.loss.curvature[1])


def _expansion(run: Run, records: int | None) -> float:
    r"""$1 + \lambda LK/b$: the most that a step expands."""
    share = 1.0 if records is None else records / run.batch_size
    return 1.0 + float(run.step_sizes[0]) * _gradient_lipschitz(run) * share


def _unsampled_rate(run: Run) -> float:
    r"""$2C^2/(nb\sigma^2)$."""
    return 0.5 * _square(math.sqrt(run.batch_size / run.records) / relative_noise(run))


def _sampled_rate(run: Run) -> float:
    r"""$8C^2/(n^2\sigma^2)$."""
    return 2.0 * _square((run.batch_size / run.records) / relative_noise(run))


def _square(value: float) -> float:
    """The square, rounded up; neither an overflow nor an underflow is an error."""
    return max(round_up(value * value, _ROUNDING), 5e-324)


def _restrictions(run: Run) -> tuple[Finding, Finding]:
    """What the restricted forms need of sampling rate and noise."""
    share, noise = run.batch_size / run.records, relative_noise(run)
    if share <= LARGEST_PROBABILITY:
        batch = holds("batch share", f"{run.batch_size} of {run.records} records, at most a fifth")
    else:
        batch = fails(
            "batch share",
            f"it needs b <= n/5; batches have {run.batch_size} of {run.records} records",
            source="batches.size",
            remedy="use liang-2025-3.4-corrected or sampled-gaussian, which take any share.",
        )
    if noise > SMALLEST_NOISE:
        return batch, holds("noise level", f"noise {2 * noise:.6g} > 8, relative to one record's gradient bound, of the sum")
    level = fails(
        "noise level",
        f"it needs noise above 8 times one record's gradient bound, of the sum; it is {2 * noise:.6g}",
        source="noise_multiplier",
        remedy="use liang-2025-3.4-corrected or sampled-gaussian, which take any noise.",
    )
    return batch, level
