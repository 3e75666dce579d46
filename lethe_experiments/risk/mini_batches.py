r"""What drawing batches adds to the risk, next to the privacy noise; the printed term and one that holds.

Setting of `gradient_descent`, but each step averages b records drawn uniformly without replacement, or with it. Only the risk is treated:
the paper's budget for batches, $R' = R(N/b)^2$, is no privacy guarantee, and is not offered.

Reference: Hong, Wang, Zhou 2022, FAccT, Theorems 4.9 and 4.10; doi:10.1145/3531146.3533070.
"""

from __future__ import annotations

import math

from lethe.calculus.domains import require_count, require_nonnegative, require_positive
from lethe_experiments.risk.momentum import u3_uniform
from lethe_experiments.risk.momentum_risk import require_momentum_rate
from lethe_experiments.standing import PublishedNumber, refuted


def batch_term(*, gradient_variance: float, pl_constant: float, batch_size: int, initial_gap: float) -> float:
    r"""The relative bound rises by at most this, whatever the number of steps of size $1/M$.

    $$\sum_t\gamma^{T-t}\,\frac{M}{2}\cdot\frac1{M^2}\cdot\frac{s^2}{b f_1} \le \frac{s^2}{2\mu b f_1}$$

    Args:
        gradient_variance: $s^2 \ge 0$, a bound over the domain of the mean over records of $\|\nabla f_i - \nabla f\|^2$.
        pl_constant: $\mu > 0$ of the mean loss.
        batch_size: $b \ge 1$.
        initial_gap: $f_1 > 0$.
    Returns:
        The term, relative to the initial gap.
    Raises:
        InputError: an argument is outside its range.
    """
    variance, mu = require_nonnegative("gradient_variance", gradient_variance), require_positive("pl_constant", pl_constant)
    return variance / (2.0 * mu * require_count("batch_size", batch_size) * require_positive("initial_gap", initial_gap))


def momentum_batch_term(
    *,
    gradient_variance: float,
    pl_constant: float,
    batch_size: int,
    initial_gap: float,
    kappa: float,
    beta: float,
    relative_step: float,
    steps: int,
) -> float:
    r"""With debiased momentum, steps $\eta_0/(2M)$: `momentum_risk.erub_momentum` rises by at most this.

    $$\frac{\eta_0 s^2}{2Mbf_1}\sum_{t=1}^T\gamma_c^{T-t}\Big(\frac{1-\beta}{1-\beta^t}\Big)^2\sum_{i=1}^t\beta^{2(t-i)}
    \le \frac{s^2}{\mu b f_1}$$

    *Proof.* Errors of batches drawn afresh have mean 0 given all before, as the privacy noise has, so that no two of them correlate; in
    the proof of Theorem 4.6 the noise of $g_i$ then has the second moment $DG^2\sigma_i^2/N^2 + s^2/b$ at most. The inner sum is at
    most 1, and $\sum_t\gamma_c^{T-t} \le 2\kappa/\eta_0$. $\square$ The print adds 4.9's term, and has $\kappa$ for $\kappa/\eta_0$.

    Args:
        gradient_variance, pl_constant, batch_size, initial_gap: as of `batch_term`.
        kappa: $\kappa = M/\mu \ge 1$.
        beta: $\beta \in (0, 1)$.
        relative_step: $\eta_0$, with $\zeta_c \ge 0$.
        steps: $T \ge 1$.
    Raises:
        InputError: an argument is outside its range.
        HypothesisError: the step is too long for this momentum.
    Reference: Hong et al. 2022, Theorem 4.10, corrected.
    """
    gamma = require_momentum_rate(kappa=kappa, beta=beta, relative_step=relative_step)
    plain = batch_term(gradient_variance=gradient_variance, pl_constant=pl_constant, batch_size=batch_size, initial_gap=initial_gap)
    return relative_step / kappa * plain * u3_uniform(gamma=gamma, beta=beta, steps=steps)


def printed_batch_size(*, records: int, budget: float) -> int:
    r"""As printed: $b = \max(\lceil N\sqrt R\rceil, 1)$. It exceeds N for $R > 1$ and is most of the data for $R = 0.4$.

    Args:
        records: $N \ge 1$.
        budget: $R > 0$.
    Raises:
        InputError: an argument is outside its range.
    """
    return max(math.ceil(require_count("records", records) * math.sqrt(require_positive("budget", budget))), 1)


def printed_batch_term(
    *, dimension: int, noise_constant: float, pl_constant: float, records: int, budget: float, initial_gap: float
) -> PublishedNumber:
    r"""Theorem 4.9's term as printed, $\alpha_g\sigma_g^2 = D\sigma_g^2/(2\mu N^2 R f_1)$, for the batch size $N\sqrt R$.

    It takes the standard deviation of the batch noise as $\sigma_g\sqrt D/b$ with one constant $\sigma_g$; it is $s/\sqrt b$, so the
    term falls like $1/(N\sqrt R)$ and not like $1/(N^2R)$.

    Args:
        dimension: $D \ge 1$.
        noise_constant: $\sigma_g \ge 0$.
        pl_constant: $\mu > 0$.
        records: $N \ge 1$.
        budget: $R > 0$.
        initial_gap: $f_1 > 0$.
    Raises:
        InputError: an argument is outside its range.
    """
    top = require_count("dimension", dimension) * require_nonnegative("noise_constant", noise_constant) ** 2
    n, gap = float(require_count("records", records)), require_positive("initial_gap", initial_gap)
    value = top / (2.0 * require_positive("pl_constant", pl_constant) * n * n * require_positive("budget", budget) * gap)
    return refuted(value, r"D\sigma_g^2/(2\mu N^2 R f_1)", "batch noise falls like 1/sqrt(b), not 1/b; use batch_term")
