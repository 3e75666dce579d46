r"""Statement, the result of every mechanism, and Gaussian noise for releases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from lethe.calculus.any_guarantee.composition import joined
from lethe.calculus.conversions import gdp_mu
from lethe.calculus.domains import outside, require_nonnegative, require_positive
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, Guarantee, NotPrivate, RDPCurve
from lethe.calculus.rounding import round_down, round_up
from lethe.calculus.targets import require_target
from lethe.certificates.certificate import Citation
from lethe.certificates.findings import FRESH_NOISE, Finding, first_failure, not_fresh
from lethe.errors import HypothesisError, InputError
from lethe.run.run import Neighbours

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The guarantee of a release, and what it rests on.

    Formal guarantee: for every two data sets that are neighbours in the sense of `neighbours`, the laws of what was released satisfy
    `guarantee`, in both directions. Not covered: the rounding of floating-point numbers, the generator (statistical, not cryptographic),
    and how long the computation took.

    Args:
        name: what was released, in a few words.
        guarantee: what it costs, for the one relation `neighbours`.
        neighbours: "replace_one" or "zero_out", with the number of records public, or "add_or_remove".
        findings: every hypothesis the guarantee rests on; all hold, but for fresh noise of what is seeded.
        citations: where the theorem is published.
        seeded: whether noise or secret draws came from a seed or generator that somebody chose: whoever has it knows them. What is given
            as `guarantee` is then kept as `with_fresh_noise`, and the guarantee is none.
        with_fresh_noise: what would hold had they been drawn fresh; None where they were.
    Raises:
        HypothesisError: a hypothesis fails.
        InputError: a field of the wrong type, or an unknown relation.
    """

    name: str
    guarantee: Guarantee
    neighbours: Neighbours
    findings: tuple[Finding, ...]
    citations: tuple[Citation, ...]
    seeded: bool = False
    with_fresh_noise: Guarantee | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.guarantee, Guarantee):
            raise outside("guarantee", self.guarantee, "a guarantee of lethe.calculus")
        if self.neighbours not in get_args(Neighbours):
            raise outside("neighbours", self.neighbours, "one of " + ", ".join(get_args(Neighbours)))
        object.__setattr__(self, "findings", tuple(self.findings))
        object.__setattr__(self, "citations", tuple(self.citations))
        if self.seeded:
            self._take_back()
        elif self.with_fresh_noise is not None:
            raise outside("with_fresh_noise", self.with_fresh_noise, "None, where nothing is seeded")
        failure = first_failure(finding for finding in self.findings if not (self.seeded and finding.name == FRESH_NOISE))
        if failure is not None:
            raise HypothesisError(
                f"{self.name}: {failure.name}: {failure.detail}", source=failure.source or None, remedy=failure.remedy or None
            )

    def _take_back(self) -> None:
        """Of what is seeded: no guarantee, and the reason."""
        if not isinstance(self.guarantee, NotPrivate):
            object.__setattr__(self, "with_fresh_noise", self.guarantee)
            object.__setattr__(self, "guarantee", NotPrivate())
        kept = tuple(finding for finding in self.findings if finding.name != FRESH_NOISE)
        object.__setattr__(self, "findings", (*kept, not_fresh(f"with fresh noise: {self.planned.describe()}")))

    @property
    def planned(self) -> Guarantee:
        """What it costs where noise and secret draws are fresh: what a budget is divided by, and never what a seeded release may claim."""
        return self.guarantee if self.with_fresh_noise is None else self.with_fresh_noise

    def epsilon(self, delta: float) -> float:
        r"""The smallest $\epsilon$ proved at $\delta \in [0, 1)$; InputError outside that range."""
        return self.guarantee.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        r"""The smallest $\delta$ proved at $\epsilon \ge 0$; InputError outside that range."""
        return self.guarantee.delta(epsilon)

    def to_dict(self) -> dict[str, Any]:
        """The statement as plain data, for a file."""
        return {
            "name": self.name,
            "guarantee": self.guarantee.to_dict(),
            "neighbours": self.neighbours,
            "findings": [finding.to_dict() for finding in self.findings],
            "citations": [{"key": citation.key, "text": citation.text} for citation in self.citations],
            **({"seeded": True, "with_fresh_noise": self.planned.to_dict()} if self.seeded else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrivateWeights:
    """Weights that may be published.

    Args:
        weights: shape (D, k), read-only; the intercept's row is the last one.
        statement: what they cost.
        noise_std: of the main noise, in the unit in which the mechanism adds it.
    """

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
    picks between a Gaussian one and randomised response.

    Args:
        statements: at least one, all for the same relation; each with noise of its own.
        name: of the joint statement; empty: the names of the parts.
    Raises:
        InputError: no statement, or two relations.
    """
    parts = tuple(statements)
    if not parts or not all(isinstance(part, Statement) for part in parts):
        raise outside("statements", parts, "at least one statement, and nothing else")
    relations = sorted({part.neighbours for part in parts})
    if len(relations) > 1:
        raise InputError(
            f"statements: they are about {' and '.join(relations)}; together they need one relation.",
            source="the argument statements",
            remedy="make every release for the same neighbours",
        )
    return Statement(
        name=name or "; ".join(part.name for part in parts),
        guarantee=joined([(part.planned, 1) for part in parts]),
        neighbours=parts[0].neighbours,
        findings=tuple(dict.fromkeys(finding for part in parts for finding in part.findings)),
        citations=tuple(dict.fromkeys(citation for part in parts for citation in part.citations)),
        seeded=any(part.seeded for part in parts),
    )


def gaussian_guarantee(sensitivity: float, noise_std: float) -> GDP | NotPrivate:
    r"""$(s/\sigma)$-GDP of $q + N(0, \sigma^2 I)$ where neighbours move q by at most s, rounded up; exact if some pair moves it by s.

    Args:
        sensitivity: $s \ge 0$, Euclidean.
        noise_std: $\sigma \ge 0$, same unit.
    Raises:
        InputError: an argument is out of its range.
    Reference: Dong, Roth, Su 2019, arXiv:1905.02383, Theorem 2.7.
    """
    moved, noise = (
        require_nonnegative("sensitivity", sensitivity, allow_infinity=False),
        require_nonnegative("noise_std", noise_std, allow_infinity=False),
    )
    if moved == 0.0:
        return GDP(0.0)
    ratio = moved / noise if noise > 0.0 else math.inf
    # A ratio that underflows is above 0 all the same.
    return GDP(max(round_up(ratio, 1e-15), 5e-324)) if ratio < math.inf else NotPrivate()


def target_mu(target: Guarantee) -> float:
    r"""The largest $\mu$, rounded down, for which $\mu$-GDP implies the target.

    $(\epsilon, \delta)$: the inverse of the exact profile; $\rho$: $\sqrt{2\rho}$; a Rényi curve:
    $\min_\alpha\sqrt{2\epsilon(\alpha)/\alpha}$.

    Raises:
        InputError: no guarantee, or one that no finite noise meets, or any.
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
    r"""The smallest $\sigma$, rounded up, for which $q + N(0, \sigma^2 I)$ meets the target: $s/\mu$ with `target_mu`.

    Args:
        sensitivity: s > 0, Euclidean.
        target: (epsilon, delta), mu-GDP, rho-zCDP or a Rényi curve.
    Raises:
        InputError: the sensitivity or the target is out of its range.
    """
    return round_up(require_positive("sensitivity", sensitivity) / target_mu(target), 4e-15)


def require_swap(neighbours: object) -> float:
    """How many gradient bounds one record's two contributions can be apart: 2 for "replace_one", 1 for "zero_out".

    Raises:
        InputError: another relation; where n itself is private these mechanisms do not apply.
    """
    if neighbours == "replace_one":
        return 2.0
    if neighbours == "zero_out":
        return 1.0
    raise outside("neighbours", neighbours, "replace_one or zero_out: the number of records is public here")
