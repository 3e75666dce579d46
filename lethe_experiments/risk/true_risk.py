r"""From the empirical excess risk to the true one: what a bound on the training set says about new records.

Losses $f(\theta; x)$ that are G-Lipschitz in $\theta$ on the domain used, records drawn independently from one distribution. The true
excess risk is $\mathrm{TER} = E_xE[f(\theta; x)] - \min_{\hat\theta}E_x f(\hat\theta; x)$; EER is the empirical one,
$E[f(\theta)] - \min f$.
A $\mu$-strongly convex loss is Lipschitz only on a bounded domain, on which its gradients vary by at least $\mu$ times the diameter.

Reference: Hong, Wang, Zhou 2022, FAccT, section 4.4, two statements corrected; doi:10.1145/3531146.3533070.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lethe.calculus.domains import require_count, require_nonnegative, require_positive
from lethe.errors import HypothesisError, InputError
from lethe_experiments.ranges import require_inside
from lethe_experiments.standing import PublishedNumber, refuted


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetitions:
    """Independent runs that share one budget.

    Args:
        runs: $k = \\lceil\\log_2(1/p)\\rceil$.
        budget_each: $R/k$.
    """

    runs: int
    budget_each: float


def ter_high_probability(*, excess: float, gradient_bound: float, strong_convexity: float, records: int, failure: float) -> float:
    r"""The true excess risk, with probability at least $1 - p$ over the drawing of the records.

    $$\mathrm{TER} \le \sqrt{\frac{2G^2}{\mu}}\sqrt{\mathrm{EER}} + \frac{4G^2}{p\mu N}$$

    *Proof.* With $\hat\theta$ the empirical minimiser, the true risks of $\theta$ and $\hat\theta$ differ by at most
    $G\|\theta-\hat\theta\|$ and $\frac\mu2\|\theta-\hat\theta\|^2 \le f(\theta) - f(\hat\theta)$; the second term is that of
    $\hat\theta$ (Shalev-Shwartz et al. 2009, section 5). For $\theta$ random take the mean over its noise; the square root is concave.
    $\square$ The print divides by N under the first root.

    Args:
        excess: $\mathrm{EER} \ge 0$ or a bound of it for every data set, loss units.
        gradient_bound: $G > 0$.
        strong_convexity: $\mu > 0$ of every record's loss.
        records: $N \ge 1$.
        failure: $p \in (0, 1)$.
    Returns:
        The bound, loss units.
    Raises:
        InputError: an argument is outside its range.
    Reference: Hong et al. 2022, Theorem 4.11, corrected.
    """
    root, rest = _two_terms(excess, gradient_bound, strong_convexity, records, failure)
    return root + rest


def printed_ter_high_probability(
    *, excess: float, gradient_bound: float, strong_convexity: float, records: int, failure: float
) -> PublishedNumber:
    r"""Theorem 4.11 as printed, which is false: $\sqrt{2G^2/(\mu N)}\sqrt{\mathrm{EER}} + 4G^2/(p\mu N)$.

    For $f = (\theta - x)^2/2$, $N = 10^6$, half a unit from the minimiser it gives .00116, and the true excess risk is .125.

    Args, Raises: as `ter_high_probability`.
    """
    root, rest = _two_terms(excess, gradient_bound, strong_convexity, records, failure)
    return refuted(
        root / math.sqrt(records) + rest,
        r"\sqrt{2G^2/(\mu N)}\sqrt{\mathrm{EER}} + 4G^2/(p\mu N)",
        "the first term of a mean of losses has no N; use ter_high_probability",
    )


def repetitions(*, failure: float, budget: float) -> Repetitions:
    r"""How often to repeat a run, and with which budget each, so that the best is good with probability $1 - p$.

    By Markov's inequality one run stays below $2F(R/k)$ with probability at least one half, F its mean excess risk at that budget; so the
    best of $k = \lceil\log_2(1/p)\rceil$ does with probability $1 - p$. The print leaves out the factor 2. Choosing the best by its
    loss on private records is a further release, which this budget does not pay for.

    Args:
        failure: $p \in (0, 1)$.
        budget: $R > 0$ for all together.
    Raises:
        InputError: an argument is outside its range.
    Reference: Hong et al. 2022, section 4.4; the idea is of Bassily, Smith, Thakurta 2014.
    """
    runs = max(1, math.ceil(-math.log2(require_inside("failure", failure))))
    return Repetitions(runs=runs, budget_each=require_positive("budget", budget) / runs)


def uniform_stability(
    *, gradient_bound: float, step_size: float, smoothness: float, steps: int, records: int, strong_convexity: float = 0.0
) -> float:
    r"""How much one record's loss can change when another record is replaced: s, with $\mathrm{TER} \le \mathrm{EER} + s$ in expectation.

    $$s = \frac{2G^2\eta}{N}\sum_{t<T}L^t \le \frac{2G^2\eta T}{N}, \qquad L = \max(|1 - \eta\mu|, |1 - \eta M|), \quad \eta \le 2/M$$

    *Proof.* Two runs with the same noise, one record replaced: each step leaves their distance at most L times what it was and adds at
    most $2G\eta/N$. Losses differ by at most G times the distance, and the mean gap between true and empirical risk is at most s. $\square$

    The print has half of it for $\mu = 0$, which is the constant of an averaged iterate, not of the last one, and drops the term from the
    comparison as a constant. With $\mu > 0$ it stays below $2G^2/(\mu N)$ for $\eta \le 2/(M + \mu)$ however long the run.

    Args:
        gradient_bound: $G > 0$.
        step_size: $\eta > 0$, at most $2/M$.
        smoothness: $M > 0$ of every record's loss, which must be convex.
        steps: $T \ge 1$, full batches, noise independent of the data.
        records: $N \ge 1$.
        strong_convexity: $\mu \in [0, M]$ of every record's loss.
    Returns:
        s, loss units.
    Raises:
        InputError: an argument is outside its range.
        HypothesisError: the step is longer than $2/M$.
    Reference: Hong et al. 2022, Theorem 4.14, corrected; Hardt, Recht, Singer 2016, arXiv:1509.01240, Theorem 3.8.
    """
    bound, step = require_positive("gradient_bound", gradient_bound), require_positive("step_size", step_size)
    smooth, convex = require_positive("smoothness", smoothness), require_nonnegative("strong_convexity", strong_convexity)
    if convex > smooth:
        raise InputError(
            f"strong_convexity = {convex:g}; it cannot exceed smoothness = {smooth:g}.",
            source="the arguments strong_convexity and smoothness",
            remedy="check their units.",
        )
    if step * smooth > 2.0:
        raise HypothesisError(
            f"a gradient step may expand: step_size = {step:g}; it needs at most 2 / smoothness = {2.0 / smooth:g}.",
            source="the arguments step_size and smoothness",
            remedy="take shorter steps.",
        )
    count, factor = require_count("steps", steps), max(abs(1.0 - step * convex), abs(1.0 - step * smooth))
    total = float(count) if factor == 1.0 else -math.expm1(count * math.log(factor)) / (1.0 - factor) if factor else 1.0
    return 2.0 * bound * bound * step * total / require_count("records", records)


def ter_expectation(*, excess: float, stability: float) -> float:
    r"""The true excess risk, in expectation over the records and the noise: $\mathrm{TER} \le \mathrm{EER} + s$.

    Args:
        excess: $\mathrm{EER} \ge 0$, loss units.
        stability: s of `uniform_stability`, loss units; it usually dominates for many records, so it may not be dropped.
    Raises:
        InputError: an argument is outside its range.
    Reference: Hong et al. 2022, Theorems 4.13 and 4.14; Shalev-Shwartz and Ben-David 2014, Theorem 13.2.
    """
    return require_nonnegative("excess", excess) + require_nonnegative("stability", stability)


def printed_uniform_stability(*, gradient_bound: float, step_size: float, steps: int, records: int) -> PublishedNumber:
    r"""Theorem 4.14 as printed, $s = G^2\eta T/N$, which is false for the last iterate of full-batch descent.

    Linear losses $\pm G\theta$ reach twice this stability, and for one record and one step there are convex losses whose mean gap is
    larger.

    Args, Raises: as `uniform_stability`.
    """
    bound, step = require_positive("gradient_bound", gradient_bound), require_positive("step_size", step_size)
    value = bound * bound * step * require_count("steps", steps) / require_count("records", records)
    return refuted(value, r"G^2\eta T/N", "a replaced record moves a step by 2G\u03b7/N, not by half of it; use uniform_stability")


def _two_terms(excess: float, gradient_bound: float, strong_convexity: float, records: int, failure: float) -> tuple[float, float]:
    bound, convex = require_positive("gradient_bound", gradient_bound), require_positive("strong_convexity", strong_convexity)
    root = bound * math.sqrt(2.0 / convex) * math.sqrt(require_nonnegative("excess", excess))
    return root, 4.0 * bound * bound / (require_inside("failure", failure) * convex * require_count("records", records))
