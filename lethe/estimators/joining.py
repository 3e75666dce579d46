r"""Composition of several releases, in closed form where a perturbed minimiser and Gaussian mechanisms are combined.

The loss of a perturbed minimiser is at most $c + \max(0, x_1, x_2, \dots)$, $x_j$ the loss of a Gaussian mechanism with $\mu_j$
(`lethe.mechanisms.minimisers.perturbed_minimiser`), whatever was released before. A release that is $\nu$-GDP adds a loss y, and

$$\big(1 - e^{s - \max(0, x_j) - y}\big)_+ \le \big(1 - e^{s-y}\big)_+ + \sum_j\big(1 - e^{s-x_j-y}\big)_+,$$

whose mean, for fixed $x_j$, is largest where y is the loss of a Gaussian mechanism with $\nu$. So every $\mu_j$ becomes
$\sqrt{\mu_j^2 + \nu^2}$, and the vertex 0 one with $\nu$: what the solver's noise does there too. Below $s = 0$ the same step as there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lethe.calculus.any_guarantee.composition import together
from lethe.calculus.composition.composition import compose_gdp
from lethe.calculus.guarantees import GDP, Guarantee
from lethe.calculus.rounding import round_up
from lethe.mechanisms.base import Statement, joint
from lethe.mechanisms.minimisers.perturbed_minimiser import PerturbedMinimiser


def joint_guarantee(guarantees: Sequence[Guarantee]) -> Guarantee:
    """The guarantee of an adaptive composition on the same data under the same relation."""
    minimisers = [one for one in guarantees if isinstance(one, PerturbedMinimiser)]
    mus = [one.mu for one in guarantees if isinstance(one, GDP)]
    if len(minimisers) != 1 or len(mus) + 1 != len(guarantees):
        return together([(one, 1) for one in guarantees])
    return minimisers[0] if not mus else _with_gaussian(minimisers[0], compose_gdp(mus))


def joint_statement(statements: Sequence[Statement], *, name: str = "") -> Statement:
    """Several releases from the same data as one.

    Args:
        statements: at least one, for the same relation.
        name: of the joint statement; empty: the names of the parts.
    Raises:
        InputError: none, or two relations.
    """
    parts = tuple(statements)
    if not any(isinstance(part.planned, PerturbedMinimiser) for part in parts) or len({part.neighbours for part in parts}) > 1:
        return joint(parts, name=name)
    return Statement(
        name=name or "; ".join(part.name for part in parts),
        guarantee=joint_guarantee([part.planned for part in parts]),
        neighbours=parts[0].neighbours,
        findings=tuple(dict.fromkeys(finding for part in parts for finding in part.findings)),
        citations=tuple(dict.fromkeys(citation for part in parts for citation in part.citations)),
        seeded=any(part.seeded for part in parts),
    )


def _with_gaussian(minimiser: PerturbedMinimiser, mu: float) -> PerturbedMinimiser:
    return PerturbedMinimiser(
        tuple(
            (determinant, (*((round_up(math.hypot(length, mu), 1e-15), count) for length, count in vertices), (mu, 1)))
            for determinant, vertices in minimiser.cases
        )
    )
