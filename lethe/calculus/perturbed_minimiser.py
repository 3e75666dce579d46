r"""PerturbedMinimiser: the privacy profile of a minimiser of a randomly tilted objective, by itself and together with Gaussian releases.

`mechanisms.minimisers.objective_perturbation` states its guarantee with it: the minimiser of a loss with a random linear term added is
released, and `any_guarantee` composes it with Gaussian releases from the same data.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lethe.calculus.domains import outside, require_count, require_nonnegative
from lethe.calculus.guarantees import Profile, freeze
from lethe.calculus.normal import log_gaussian_delta
from lethe.calculus.rounding import exp_above, round_up


@dataclass(frozen=True, slots=True)
class PerturbedMinimiser(Profile):
    r"""The profile of a perturbed minimiser: the largest, over cases, of the sums over vertices. With $s = \epsilon - c$,

    $$\delta(\epsilon) = \sum_j\delta_{\mu_j}(s)\ (s \ge 0),\qquad
      \delta(\epsilon) = 1 - e^s\Big(1 - \sum_j\delta_{\mu_j}(0)\Big)\ (s < 0).$$

    `lethe.mechanisms.minimisers.objective_perturbation` has the mechanism and the proof. Each case has c and the pairs $(\mu_j, \text{how
    many})$; $\mu_j$ already contains the solver's $\nu$.
    """

    cases: tuple[tuple[float, tuple[tuple[float, int], ...]], ...]
    kind: ClassVar[str] = "perturbed_minimiser"

    def __post_init__(self) -> None:
        if not self.cases or not all(vertices for _, vertices in self.cases):
            raise outside("cases", self.cases, "at least one case with at least one vertex")
        checked = tuple(
            (
                require_nonnegative("log_determinant", determinant, allow_infinity=False),
                tuple(
                    (require_nonnegative("mu", mu, allow_infinity=False), require_count("count", count, high=10**30))
                    for mu, count in vertices
                ),
            )
            for determinant, vertices in self.cases
        )
        freeze(self, cases=checked)

    def delta(self, epsilon: float) -> float:
        """The smallest delta at `epsilon`, rounded up."""
        level = require_nonnegative("epsilon", epsilon)
        if math.isinf(level):
            return 0.0
        mus = np.array([mu for _, vertices in self.cases for mu, _ in vertices])
        # Lowered by its rounding, which can only raise the result.
        shifted = [level - determinant - 4e-16 * (level + determinant) for determinant, _ in self.cases]
        levels = np.repeat(np.maximum(shifted, 0.0), [len(vertices) for _, vertices in self.cases])
        deltas = exp_above(log_gaussian_delta(mus, levels)).tolist()
        worst, offset = 0.0, 0
        for below, (_, vertices) in zip(shifted, self.cases, strict=True):
            total = math.fsum(count * value for (_, count), value in zip(vertices, deltas[offset:], strict=False))
            total = min(round_up(total, 1e-15), 1.0)
            offset += len(vertices)
            worst = max(worst, total if below >= 0.0 else round_up(-math.expm1(below) + math.exp(below) * total, 1e-15))
        return min(worst, 1.0)

    def describe(self) -> str:
        """The largest shift, and what the determinants cost."""
        largest = max(mu for _, vertices in self.cases for mu, _ in vertices)
        return f"perturbed minimiser: shifts up to {largest:.4g}, determinants {max(c for c, _ in self.cases):.4g}"


def beside_gaussian(minimiser: PerturbedMinimiser, mu: float) -> PerturbedMinimiser:
    r"""A perturbed minimiser and a $\nu$-GDP release from the same data, in closed form.

    The minimiser's loss is at most $c + \max(0, x_1, x_2, \dots)$, $x_j$ the loss of a Gaussian mechanism with $\mu_j$, whatever was
    released before. The other release adds a loss y, and

    $$\big(1 - e^{s - \max(0, x_j) - y}\big)_+ \le \big(1 - e^{s-y}\big)_+ + \sum_j\big(1 - e^{s-x_j-y}\big)_+,$$

    whose mean, for fixed $x_j$, is largest where y is the loss of a Gaussian mechanism with $\nu$. So every $\mu_j$ becomes $\sqrt{\mu_j^2
    + \nu^2}$, and the vertex 0 one with $\nu$: what the solver's noise does there too. Below $s = 0$ the same step as there. $\nu \ge 0$ is
    finite.
    """
    added = require_nonnegative("mu", mu, allow_infinity=False)
    return PerturbedMinimiser(
        tuple(
            (determinant, (*((round_up(math.hypot(length, added), 1e-15), count) for length, count in vertices), (added, 1)))
            for determinant, vertices in minimiser.cases
        )
    )
