r"""Mironov, Talwar, Zhang 2019: the closed form for Poisson-sampled Gaussian steps, composed.

$\alpha$ is the Rényi order, q the sampling rate, z the noise multiplier. Lethe's own `sampled-gaussian` computes the same divergence
numerically and is tighter, by about 4 times; papers quote the closed form. Kept to compare: `lethe.compare` shows it beside Lethe's own
bounds, and `certify` tries it only if asked by name.
"""

from typing import ClassVar

import numpy as np

from lethe.calculus.guarantees import RDPCurve
from lethe.calculus.rounding import above, square_above
from lethe.calculus.sampled.order import LARGEST_PROBABILITY, SMALLEST_NOISE, largest_order
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation
from lethe.run.run import Run
from lethe.theorems.base import Bound, Covers, Theorem
from lethe.theorems.citations import cite
from lethe.theorems.requirements import design, each_gradient_bounded, relation, secrecy

# A hundred orders a decade of alpha - 1: the best of them costs a few parts in ten thousand against the best of all.
_ORDERS = 1.0 + np.geomspace(1e-3, 1e6, 901)
# More noise than this counts as this: the largest order only grows with the noise.
_MOST_NOISE = 1e100


def _closed_form_rho(probability: float, relative_noise: float) -> float:
    r"""$\rho$ of $\epsilon(\alpha) = \rho\alpha$ for one step, at the orders up to `largest_order` alone.

    $\rho = 2q^2/z^2$ for $q \le 1/5$ and noise $z \ge 4$ on the sum, in units of one record's gradient bound; about 4 times what it bounds,
    and not rounded outward. Reference: Mironov, Talwar, Zhang 2019, arXiv:1908.10530, Theorem 11.
    """
    return 2.0 * (probability / relative_noise) ** 2


class Mironov2019(Theorem):
    r"""Poisson batches, every iterate released: the closed form, valid for small sampling rates, much noise and low orders.

    $$\epsilon(\alpha) = \sum_t \frac{2\alpha q^2}{z_t^2},\qquad 1 < \alpha \le \alpha^*(q, \min_t z_t)$$

    and no bound at any other order. With $K = \log(1 + \frac{1}{q(\alpha-1)})$ the largest order solves
    $\alpha \le \frac{K z^2}{2} - 2\log z$ and $\alpha \le \frac{K^2z^2/2 - \log 5 - 2\log z}{K + \log(q\alpha) + 1/(2z^2)}$.
    Steps of different noise compose, each under its own condition, of which that of the least noise is the strictest.
    """

    name: ClassVar[str] = "mironov-2019"
    statement: ClassVar[str] = "Closed form of the sampled Gaussian mechanism at low orders, composed over the steps."
    formula: ClassVar[str] = r"\epsilon(\alpha) = \sum_t 2\alpha q^2/z_t^2,\ \alpha \le \alpha^*(q, z),\ q \le 1/5,\ z \ge 4"
    needs: ClassVar[str] = "Poisson batches, secret; zero_out or add_or_remove; sampling rate at most 1/5; noise multiplier at least 4"
    covers: ClassVar[Covers] = "all"
    citations: ClassVar[tuple[Citation, ...]] = (cite("mironov-2019", ", Theorem 11"),)

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (
            design(run, ("poisson",), "every record drawn by itself at each step"),
            relation(run, ("zero_out", "add_or_remove")),
            each_gradient_bounded(run),
            _rare(run),
            _much_noise(run),
            secrecy(run),
        )

    def _bound(self, run: Run) -> Bound:
        probability = run.batch_size / run.records
        noise = run.relative_noise
        rho = float(np.sum(_closed_form_rho(probability, 1.0) * square_above(1.0 / noise)))
        largest = largest_order(probability, min(float(noise.min()), _MOST_NOISE))
        orders = np.unique(np.append(_ORDERS, largest))
        # Pairwise sums of T terms.
        values = [float(above(rho * order, 1e-13)) if order <= largest else np.inf for order in orders.tolist()]
        return Bound(guarantee=RDPCurve(tuple(orders.tolist()), tuple(values)))


def _rare(run: Run) -> Finding:
    """The closed form holds up to a sampling rate of 1/5."""
    probability = run.batch_size / run.records
    if probability <= LARGEST_PROBABILITY:
        return holds("sampling rate", f"{probability:.6g} <= 1/5")
    return fails(
        "sampling rate",
        f"it needs a sampling rate of at most 1/5; batches hold {probability:.6g} of the records",
        source=f"batches.size = {run.batch_size}, records = {run.records}",
        remedy="take smaller batches, or use sampled-gaussian, which has no such limit.",
    )


def _much_noise(run: Run) -> Finding:
    """The closed form holds from a noise multiplier of 4 on."""
    # Here relative_noise may be that of replace_one, which `relation` refuses.
    smallest = float(run.relative_noise.min())
    if smallest >= SMALLEST_NOISE:
        return holds("noise", f"noise multiplier {smallest:.6g} >= 4 at every step")
    return fails(
        "noise",
        f"it needs a noise multiplier of at least 4 at every step; the smallest is {smallest:.6g}",
        source="noise_multiplier",
        remedy="use sampled-gaussian, which takes any noise.",
    )
