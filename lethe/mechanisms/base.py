r"""What mechanisms share: weights with their statement, joint statements, and Gaussian noise for releases.

Every mechanism and estimator takes its noise and its statement from here: `gaussian_noise_std` calibrates to a target $\mu$,
`gaussian_statement` says what a sensitivity and a noise prove, and `joint` composes several.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lethe.calculus.any_guarantee import joined
from lethe.calculus.composition import require_target
from lethe.calculus.conversions import gdp_mu
from lethe.calculus.domains import outside, require_nonnegative, require_positive
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, Guarantee, NotPrivate, RDPCurve
from lethe.calculus.rounding import round_down, round_up
from lethe.certificates.derivation import Derivation, derivation
from lethe.certificates.findings import Finding
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.run.run import Neighbours

Array = NDArray[np.float64]
Number = TypeVar("Number", int, float)
GAUSSIAN = Citation(key="dong-2019", text="Dong, Roth, Su 2019, Gaussian differential privacy, arXiv:1905.02383, Theorem 2.7")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrivateWeights:
    """Weights that may be published, shape (D, k), the intercept's row last, and what they cost; the main noise in the mechanism's unit."""

    weights: Array
    statement: Statement
    noise_std: float

    def __post_init__(self) -> None:
        weights = self.weights.copy()
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)


def joint(statements: Sequence[Statement], *, name: str = "") -> Statement:
    """Several releases from the same data as one: adaptive composition, so a later one may have used what earlier ones gave.

    What each costs must have been fixed before all of them, or all be Gaussian with a sum of squares that was. A release that decides
    *which* guarantee a later one has may cost more than the joint statement of either: up to twice its delta for a Gaussian one that
    picks between a Gaussian one and randomised response. All are for the same relation and unit of privacy, each with noise of its own;
    without a name the joint one has those of the parts.
    """
    parts = tuple(statements)
    if not parts or not all(isinstance(part, Statement) for part in parts):
        raise outside("statements", parts, "at least one statement, and nothing else")
    about = {"relation": {part.neighbours for part in parts}, "unit of privacy": {part.unit for part in parts}}
    for what, values in about.items():
        if len(values) > 1:
            raise InputError(
                f"statements: they are about {' and '.join(sorted(values))}; together they need one {what}.",
                source="the argument statements",
                remedy=f"make every release for the same {what}",
            )
    return Statement(
        unit=parts[0].unit,
        name=name or "; ".join(part.name for part in parts),
        guarantee=joined([(part.planned, 1) for part in parts]),
        neighbours=parts[0].neighbours,
        findings=tuple(dict.fromkeys(finding for part in parts for finding in part.findings)),
        citations=tuple(dict.fromkeys(citation for part in parts for citation in part.citations)),
        seeded=any(part.seeded for part in parts),
        derivation=_composed_of(parts),
        records=_common(part.records for part in parts),
        target_delta=_common(part.target_delta for part in parts),
    )


def _composed_of(parts: Sequence[Statement]) -> Derivation:
    """Releases of one mechanism with the same numbers are listed once, with how many there are: quantiles of many columns."""
    counts: dict[tuple[Statement, Derivation | None, str], int] = {}
    for part in parts:
        key = part, part.derivation, part.release_id
        counts[key] = counts.get(key, 0) + 1
    many = {"counts": list(counts.values())} if max(counts.values()) > 1 else {}
    return derivation("composition", *(part for part, _, _ in counts), **many)


def _common(values: Iterable[Number | None]) -> Number | None:
    """The one value that all of them have, if there is one."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def gaussian_guarantee(sensitivity: float, noise_std: float) -> GDP | NotPrivate:
    r"""$(s/\sigma)$-GDP of $q + N(0, \sigma^2 I)$ where neighbours move q by at most s, rounded up; exact if some pair moves it by s."""
    moved = require_nonnegative("sensitivity", sensitivity, allow_infinity=False)
    noise = require_nonnegative("noise_std", noise_std, allow_infinity=False)
    if moved == 0.0:
        return GDP(0.0)
    ratio = moved / noise if noise > 0.0 else math.inf
    # A ratio that underflows is above 0 all the same.
    return GDP(max(round_up(ratio, 1e-15), 5e-324)) if ratio < math.inf else NotPrivate()


def gaussian_statement(
    name: str,
    kind: str,
    *,
    sensitivity: float,
    noise_std: float,
    neighbours: Neighbours,
    records: int,
    generator: np.random.Generator | None,
    findings: tuple[Finding, ...],
    citations: tuple[Citation, ...] = (GAUSSIAN,),
    **numbers: Any,
) -> Statement:
    """What a Gaussian release costs: `numbers` and the noise are what the rule of this kind computes its guarantee from."""
    return Statement(
        name=name,
        guarantee=gaussian_guarantee(sensitivity, noise_std),
        neighbours=neighbours,
        findings=findings,
        citations=citations,
        seeded=generator is not None,
        derivation=derivation(kind, **numbers, noise_std=noise_std),
        records=records,
    )


def target_mu(target: Guarantee) -> float:
    r"""The largest $\mu$, rounded down, for which $\mu$-GDP implies the target.

    $(\epsilon, \delta)$: the inverse of the exact profile; $\rho$: $\sqrt{2\rho}$; a Rényi curve:
    $\min_\alpha\sqrt{2\epsilon(\alpha)/\alpha}$.
    """
    goal = require_target(target)
    if isinstance(goal, GDP):
        return goal.mu
    if isinstance(goal, ZCDP):
        return round_down(math.sqrt(2.0 * goal.rho), 1e-15)
    if isinstance(goal, RDPCurve):
        return round_down(min(math.sqrt(2.0 * value / order) for order, value in zip(goal.orders, goal.values, strict=True)), 1e-15)
    assert isinstance(goal, ApproxDP)
    mu = gdp_mu(goal.epsilon_bound, goal.delta_bound)
    if mu == 0.0:
        raise InputError(
            f"target = {goal.describe()}: Gaussian noise never reaches delta = 0.",
            source="the argument target",
            remedy="give a delta above 0, well below one over the number of records",
        )
    return mu


def gaussian_noise_std(sensitivity: float, target: Guarantee) -> float:
    r"""The smallest $\sigma$, rounded up, for which $q + N(0, \sigma^2 I)$ meets the target: $s/\mu$ with `target_mu`."""
    return round_up(require_positive("sensitivity", sensitivity) / target_mu(target), 4e-15)


def require_swap(neighbours: object) -> float:
    """How many gradient bounds one record's two contributions can be apart: 2 for "replace_one", 1 for "zero_out".

    Where n itself is private these mechanisms do not apply, and other relations are refused.
    """
    if neighbours == "replace_one":
        return 2.0
    if neighbours == "zero_out":
        return 1.0
    raise outside("neighbours", neighbours, "replace_one or zero_out: the number of records is public here")
