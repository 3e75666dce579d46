r"""Feldman, Mironov, Talwar, Thakurta 2018: privacy amplification by iteration, several passes over fixed batches.

The first bound of the last iterate. Kept to compare: `lethe.compare` shows it beside Lethe's own bounds, and `certify` tries it only if
asked by name. s is how far the record moves a step, $\tau$ a step's noise, E the passes of $\ell$ batches.
"""

from typing import ClassVar

import numpy as np

from lethe.calculus.guarantees import ZCDP
from lethe.calculus.rounding import above
from lethe.certificates.findings import Finding
from lethe.certificates.parts import Citation
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.theorems import requirements as require
from lethe.theorems.base import Bound, Theorem
from lethe.theorems.citations import cite


def position_rhos(run: Run) -> Array:
    r"""$\rho_j$ of $\epsilon_j(\alpha) = \rho_j\alpha$ for a record in batch $j = 1..\ell$, shape (l,).

    $$\rho_j = \frac{s^2}{2\tau^2}\Big[\frac{E-1}{\ell} + \frac1{\ell-j+1}\Big]$$
    """
    slots, passes = run.steps_per_pass, run.total_steps // run.steps_per_pass
    touch = 1.0 / float(run.relative_noise[0])
    return 0.5 * touch * touch * ((passes - 1) / slots + 1.0 / np.arange(slots, 0, -1))


class Feldman2018(Theorem):
    r"""Amplification by iteration for convex losses, worst batch of a fixed order.

    $$\epsilon(\alpha) = \frac{\alpha s^2}{2\tau^2}\Big[\frac{E-1}{\ell} + 1\Big]$$

    The last batch is used once more with a single noise after it, so its last touch is not amplified at all. With $s = 2\lambda G/b$ and
    $\tau = \lambda\sigma$ this is $\frac{2\alpha G^2}{b^2\sigma^2}[\frac{E-1}{\ell} + 1]$; per position see `position_rhos`.
    """

    name: ClassVar[str] = "feldman-2018"
    statement: ClassVar[str] = "Amplification by iteration for convex losses and fixed batches, worst position."
    formula: ClassVar[str] = r"\epsilon(\alpha) = \frac{\alpha s^2}{2\tau^2}\left[\frac{E-1}{\ell} + 1\right]"
    needs: ClassVar[str] = "cyclic batches in whole passes, convex smooth losses, no clipping, step size at most 2/M, constant noise"
    citations: ClassVar[tuple[Citation, ...]] = (cite("feldman-2018", ", Theorem 35 (one pass: Theorem 23)"),)

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (
            require.last_iterate(run),
            require.design(run, ("cyclic",), "fixed, disjoint, every record once a pass; worst batch"),
            require.whole_passes(run),
            require.gradient_bound(run),
            require.convex(run),
            require.unclipped(run),
            require.step_at_most(run, require.two_over_smoothness(run), "2/smoothness"),
            require.constant_noise_and_step(run),
        )

    def _bound(self, run: Run) -> Bound:
        return Bound(guarantee=ZCDP(float(above(position_rhos(run).max(), 1e-14))))
