"""Chourasia, Ye, Shokri 2021: noisy gradient descent on all records, strongly convex losses, by the dynamics of the Rényi divergence.

It shows that the privacy loss of the last iterate converges where losses are strongly convex. Kept to compare: `lethe.compare` shows it
beside Lethe's own bounds, and `certify` tries it only if asked by name.
"""

from typing import ClassVar

from scipy import special

from lethe.calculus.guarantees import ZCDP
from lethe.calculus.rounding import above, square_above
from lethe.certificates.findings import Finding, holds
from lethe.certificates.parts import Citation
from lethe.run.run import Run
from lethe.theorems import requirements as require
from lethe.theorems.base import Bound, Theorem
from lethe.theorems.citations import cite


def full_batch_rho(relative_noise: float, contraction: float, steps: int) -> float:
    r"""$\rho$ of $\epsilon(\alpha) = \rho\alpha$ after K steps on all records.

    $$\rho = \frac{2}{\lambda\kappa}\,\frac{s^2}{\tau^2}\,\big(1 - e^{-\lambda\kappa K/2}\big)$$

    The paper prints $\frac{4L^2}{\kappa\sigma_C^2n^2}(1 - e^{-\lambda\kappa K/2})$ with noise $\sqrt{2\lambda}N(0, \sigma_C^2)$ in a step,
    so $\sigma_C^2 = \tau^2/2\lambda$, and $s = 2\lambda L/n$. The relative noise is $\tau/s > 0$, the contraction $\lambda\kappa > 0$: step
    size times strong convexity. Rounded up; at $\lambda\kappa \to 0$ it is $K s^2/\tau^2$, twice composition. Reference: Chourasia, Ye,
    Shokri 2021, arXiv:2102.05855 (statement reconstructed).
    """
    # (1 - e^-x) / x without cancellation.
    share = float(special.exprel(-0.5 * contraction * steps))
    return float(above(steps * share * square_above(1.0 / relative_noise), 1e-14))


class Chourasia2021(Theorem):
    r"""Noisy gradient descent on strongly convex losses: the privacy loss converges as the run gets longer.

    $$\epsilon(\alpha) = \frac{2\alpha}{\lambda\kappa}\,\frac{s^2}{\tau^2}\,\big(1 - e^{-\lambda\kappa T/2}\big)$$

    The paper starts at $N(0, \tau^2/(\lambda\kappa))$, projected on the domain, because its proof needs a law that satisfies a
    log-Sobolev inequality all along. Its number holds from any start that is independent of the data: it is never below the exact
    $\frac{\alpha s^2}{2\tau^2}\frac{1+c}{1-c}\frac{1-c^T}{1+c^T}$, $c = 1 - \lambda\kappa$, of Bok, Su & Altschuler 2024, which needs no
    law of the start. For with $h = \lambda\kappa < 1$ the two compare as $4(1 - e^{-hT/2})$ with $(2-h)\frac{1-c^T}{1+c^T} \le
    \min(hT, 2)$, and $4(1 - e^{-x}) \ge 2x$ up to $x = 1.59$, beyond which it exceeds 3.

    Written in s: 2 L / n times the step where a record is replaced, as printed; half of that where its gradient is taken away.
    """

    name: ClassVar[str] = "chourasia-2021"
    statement: ClassVar[str] = "Full-batch noisy gradient descent on strongly convex losses has a privacy loss that converges."
    formula: ClassVar[str] = r"\epsilon(\alpha) = \frac{2\alpha}{\lambda\kappa}\frac{s^2}{\tau^2}\left(1 - e^{-\lambda\kappa T/2}\right)"
    needs: ClassVar[str] = "full batches, strongly convex smooth losses, no clipping, step size below 1/M, constant noise"
    citations: ClassVar[tuple[Citation, ...]] = (
        cite("chourasia-2021"),
        cite("bok-2024", ": why any start will do"),
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        limit = 1.0 / run.loss.curvature[1] if run.loss.curvature is not None and run.loss.curvature[1] > 0 else float("inf")
        return (
            require.last_iterate(run),
            require.design(run, ("full",), "every record at every step"),
            require.gradient_bound(run),
            require.strongly_convex(run),
            require.unclipped(run),
            require.step_at_most(run, limit, "1/smoothness", strictly=True),
            require.constant_noise_and_step(run),
            holds("start", "any that is independent of the data; the paper's own Gaussian start is not needed"),
        )

    def _bound(self, run: Run) -> Bound:
        assert run.loss.curvature is not None  # examine has refused the rest
        contraction = float(run.step_sizes[0]) * -run.loss.curvature[0]
        return Bound(guarantee=ZCDP(full_batch_rho(float(run.relative_noise[0]), contraction, run.total_steps)))
