"""Guarantees: frozen statements about a mechanism, each able to say its epsilon at a delta, its delta at an epsilon, and itself in JSON.

Theorems and mechanisms return them, certificates and statements hold them, `any_guarantee` composes them; each number is rounded to the
safe side.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import ClassVar, cast

import numpy as np

from lethe.calculus import conversions
from lethe.calculus.domains import (
    FloatArray,
    outside,
    require_delta,
    require_nonnegative,
    require_pairs,
    require_probability,
    require_vector,
)
from lethe.calculus.normal import log_gaussian_delta
from lethe.calculus.rounding import above, exp_above, round_down, round_up
from lethe.calculus.tradeoffs import TradeOff
from lethe.calculus.upward_formatting import shown


class Guarantee(ABC):
    r"""A privacy guarantee: an upper bound on the privacy profile $\delta(\epsilon)$ of a mechanism for one neighbouring relation.

    Formal guarantee: whenever `epsilon(delta)` returns a number, the mechanism is (that number, delta)-DP; whenever `delta(epsilon)`
    does, it is (epsilon, that number)-DP. Both are rounded up. Infinity is an answer; nan never is.
    """

    __slots__ = ()
    kind: ClassVar[str]

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        r"""Smallest $\epsilon \in [0, \infty]$ this guarantee proves at $\delta \in [0, 1)$; InputError outside that range."""

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        r"""Smallest $\delta \in [0, 1]$ this guarantee proves at $\epsilon \in [0, \infty]$; InputError outside that range."""

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        r"""`delta` at many ascending $\epsilon \ge 0$, shape (n,); faster than by themselves where the kind allows it."""
        return np.array([self.delta(level) for level in epsilons.tolist()])

    def tradeoff(self, type_one: float) -> float:
        r"""A lower bound of the trade-off function: the least type II error of any test that tells two neighbours apart.

        $\alpha \in [0, 1]$ is the chance of a type I error. About a hundred lines are looked at (`TradeOff`), and the largest is rounded
        down. Reference: Dong, Roth, Su 2019, arXiv:1905.02383, Proposition 2.5.
        """
        return float(TradeOff.of(self).type_two(require_probability("type_one", type_one)))

    @abstractmethod
    def describe(self) -> str:
        """A few words for people, such as `0.2442-GDP`."""

    def to_dict(self) -> dict[str, object]:
        """The guarantee as a JSON-safe dictionary, exact: `guarantee_from_dict` gives back an equal one. Infinity is the text "inf"."""
        return {"kind": self.kind} | {name: encode(cast(object, getattr(self, name))) for name in stored_fields(type(self))}


def stored_fields(kind: type[Guarantee]) -> tuple[str, ...]:
    """Names of the fields that make a guarantee: those its constructor takes."""
    return tuple(entry.name for entry in fields(kind) if entry.init)  # pyright: ignore[reportArgumentType]


def encode(value: object) -> object:
    """A field's value in JSON: guarantees become dictionaries, tuples lists, infinity the text "inf"."""
    if isinstance(value, Guarantee):
        return value.to_dict()
    if isinstance(value, tuple):
        return [encode(entry) for entry in cast("tuple[object, ...]", value)]
    return "inf" if value == math.inf else value


def freeze(guarantee: Guarantee, **values: object) -> None:
    """Store checked values in a frozen dataclass while it is being made."""
    for name, value in values.items():
        object.__setattr__(guarantee, name, value)


class Profile(Guarantee):
    r"""A guarantee known through its privacy profile: a subclass gives a nonincreasing `delta`, and `epsilon` is solved from it."""

    __slots__ = ()

    def epsilon(self, delta: float) -> float:
        r"""The smallest $\epsilon$ whose $\delta(\epsilon)$ is at most this `delta`, by `conversions.profile_epsilon`."""
        return conversions.profile_epsilon(self.delta, delta)


__all__ = ["GDP", "ZCDP", "ApproxDP", "RDPCurve"]


@dataclass(frozen=True, slots=True)
class GDP(Guarantee):
    r"""$\mu$-Gaussian differential privacy: no easier to tell apart than $N(0,1)$ and $N(\mu,1)$. $\mu = \infty$ means not private.

    Reference: Dong, Roth, Su 2019, arXiv:1905.02383.

    Examples:
        >>> round(lethe.guarantees.GDP(1.0).epsilon(1e-5), 3)
        4.377
    """

    mu: float
    kind: ClassVar[str] = "gdp"

    def __post_init__(self) -> None:
        freeze(self, mu=require_nonnegative("mu", self.mu))

    def epsilon(self, delta: float) -> float:
        r"""The smallest $\epsilon$ at this `delta`, exactly, by `conversions.gdp_epsilon`."""
        return conversions.gdp_epsilon(self.mu, delta)

    def delta(self, epsilon: float) -> float:
        r"""$\Phi(\mu/2 - \epsilon/\mu) - e^\epsilon\Phi(-\mu/2 - \epsilon/\mu)$, by `conversions.gdp_delta`."""
        return conversions.gdp_delta(self.mu, epsilon)

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """`delta` at many epsilons, computed at once."""
        return exp_above(log_gaussian_delta(self.mu, epsilons))

    def describe(self) -> str:
        """Such as `0.2442-GDP`."""
        return f"{shown(self.mu)}-GDP" if self.mu < math.inf else "no bound"


@dataclass(frozen=True, slots=True)
class ZCDP(Guarantee):
    r"""$\rho$-zero-concentrated DP: Rényi divergence at most $\rho\alpha$ at every order. $\rho = \infty$ means not private.

    Reference: Bun & Steinke 2016, arXiv:1605.02065.

    Examples:
        >>> round(lethe.guarantees.ZCDP(0.5).epsilon(1e-5), 3)
        4.728
    """

    rho: float
    kind: ClassVar[str] = "zcdp"

    def __post_init__(self) -> None:
        freeze(self, rho=require_nonnegative("rho", self.rho))

    def epsilon(self, delta: float) -> float:
        r"""An upper bound of $\epsilon$ at this `delta`, by `conversions.zcdp_epsilon`."""
        return conversions.zcdp_epsilon(self.rho, delta)

    def delta(self, epsilon: float) -> float:
        r"""An upper bound of $\delta$ at this `epsilon`, by `conversions.zcdp_delta`."""
        return conversions.zcdp_delta(self.rho, epsilon)

    def describe(self) -> str:
        """Such as `0.1964-zCDP`."""
        return f"{shown(self.rho)}-zCDP"


@dataclass(frozen=True, slots=True, repr=False)
class RDPCurve(Guarantee):
    r"""Rényi divergence at most `values[k]` at order `orders[k]`, both directions; orders above 1, values may be infinite.

    Reference: Mironov 2017, arXiv:1702.07476.
    """

    orders: tuple[float, ...]
    values: tuple[float, ...]
    kind: ClassVar[str] = "rdp"

    def __post_init__(self) -> None:
        orders, values = conversions.rdp_curve(self.orders, self.values)
        freeze(self, orders=tuple(orders.tolist()), values=tuple(values.tolist()))

    def epsilon(self, delta: float) -> float:
        r"""An upper bound of $\epsilon$ at this `delta`, the best over the orders, by `conversions.rdp_epsilon`."""
        return conversions.rdp_epsilon(self.orders, self.values, delta)[0]

    def delta(self, epsilon: float) -> float:
        r"""An upper bound of $\delta$ at this `epsilon`, the best over the orders, by `conversions.rdp_delta`."""
        return conversions.rdp_delta(self.orders, self.values, epsilon)

    def __repr__(self) -> str:
        return f"RDPCurve({self.describe()})"

    def describe(self) -> str:
        """How many orders, and their range."""
        return f"Rényi curve at {len(self.orders)} orders from {min(self.orders):g} to {max(self.orders):g}"


@dataclass(frozen=True, slots=True)
class ApproxDP(Guarantee):
    r"""$(\epsilon, \delta)$-DP at one point, and nothing anywhere better: infinity below its $\delta$, 1 below its $\epsilon$."""

    epsilon_bound: float
    delta_bound: float
    kind: ClassVar[str] = "approx_dp"

    def __post_init__(self) -> None:
        epsilon = require_nonnegative("epsilon", self.epsilon_bound, allow_infinity=False)
        freeze(self, epsilon_bound=epsilon, delta_bound=require_probability("delta", self.delta_bound))

    def epsilon(self, delta: float) -> float:
        r"""The stated $\epsilon$ where $\delta$ is at least the stated one, else infinity."""
        return self.epsilon_bound if require_delta(delta) >= self.delta_bound else math.inf

    def delta(self, epsilon: float) -> float:
        r"""The stated $\delta$ where $\epsilon$ is at least the stated one, else 1."""
        return self.delta_bound if require_nonnegative("epsilon", epsilon) >= self.epsilon_bound else 1.0

    def describe(self) -> str:
        """Such as `(1, 1e-05)-DP`."""
        return f"({shown(self.epsilon_bound)}, {shown(self.delta_bound)})-DP"


@dataclass(frozen=True, slots=True)
class NotPrivate(Guarantee):
    r"""No guarantee: $\epsilon$ is infinite at every $\delta < 1$, and $\delta$ is 1 at every $\epsilon$."""

    kind: ClassVar[str] = "not_private"

    def epsilon(self, delta: float) -> float:
        """Infinity."""
        require_delta(delta)
        return math.inf

    def delta(self, epsilon: float) -> float:
        """One."""
        require_nonnegative("epsilon", epsilon)
        return 1.0

    def describe(self) -> str:
        """Always `not private`."""
        return "not private"


@dataclass(frozen=True, slots=True, repr=False)
class GDPMixture(Profile):
    r"""A mixture of Gaussian pairs whose component is drawn in secret, with the same law on both data sets:

    $$\delta(\epsilon) = \sum_j w_j\,\delta_{\mu_j}(\epsilon)$$

    by joint convexity of the hockey-stick divergence. Weights may sum to less than 1: what is missing carries $\delta = 0$, so leave out
    only mass that is not there. $\mu_j$ may be 0 or infinite. $\mu_j$ and $w_j \ge 0$ have shape (J,); 1e-9 of rounding in the sum is
    forgiven.
    """

    mus: tuple[float, ...]
    weights: tuple[float, ...]
    _mus: FloatArray = field(init=False, repr=False, compare=False)
    _weights: FloatArray = field(init=False, repr=False, compare=False)
    kind: ClassVar[str] = "gdp_mixture"

    def __post_init__(self) -> None:
        mus = require_vector("mus", self.mus, low=0.0, allow_infinity=True)
        weights = require_vector("weights", self.weights, low=0.0)
        require_pairs("mus", mus, "weights", weights)
        total = math.fsum(weights.tolist())
        if total > 1.0 + 1e-9:
            raise outside("the sum of the weights", total, "a number at most 1")
        # Components that cannot matter cost time at every evaluation of the profile.
        alive = (mus > 0.0) & (weights > 0.0)
        freeze(self, mus=tuple(mus.tolist()), weights=tuple(weights.tolist()), _mus=mus[alive], _weights=weights[alive])

    def delta(self, epsilon: float) -> float:
        """The weighted sum of the components' exact profiles, rounded up."""
        level = require_nonnegative("epsilon", epsilon)
        deltas = exp_above(log_gaussian_delta(self._mus, level))
        products = self._weights * deltas
        # A product that underflowed is counted as the smallest float, which is above it.
        return min(round_up(math.fsum(np.where((products == 0.0) & (deltas > 0.0), 5e-324, products).tolist()), 4e-16), 1.0)

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """`delta` at many epsilons, one component of the mixture after the other."""
        total = np.zeros(epsilons.shape)
        for mu, weight in zip(self.mus, self.weights, strict=True):
            total += weight * exp_above(log_gaussian_delta(mu, epsilons))
        return above(total, 1e-15 * (2 + len(self.mus)))

    def __repr__(self) -> str:
        return f"GDPMixture({self.describe()})"

    def describe(self) -> str:
        """How many components, and their range."""
        return f"mixture of {len(self.mus)} GDPs from {shown(min(self.mus))} to {shown(max(self.mus))}"


@dataclass(frozen=True, slots=True)
class Tightest(Guarantee):
    r"""Several guarantees of the same mechanism and relation that all hold: the smallest $\epsilon$, or $\delta$, of any."""

    parts: tuple[Guarantee, ...]
    kind: ClassVar[str] = "tightest"

    def __post_init__(self) -> None:
        parts = tuple(self.parts)
        if not parts or not all(isinstance(part, Guarantee) for part in cast("tuple[object, ...]", parts)):
            raise outside("parts", self.parts, "at least one guarantee, and nothing else")
        freeze(self, parts=parts)

    def epsilon(self, delta: float) -> float:
        """The smallest of the parts."""
        return min(part.epsilon(delta) for part in self.parts)

    def delta(self, epsilon: float) -> float:
        """The smallest of the parts."""
        return min(part.delta(epsilon) for part in self.parts)

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """The smallest of the parts."""
        return np.min([part.deltas(epsilons) for part in self.parts], axis=0)

    def describe(self) -> str:
        """All the parts."""
        return "the tightest of: " + "; ".join(part.describe() for part in self.parts)


@dataclass(frozen=True, slots=True)
class WithSlack(Guarantee):
    r"""A guarantee that may fail with probability `slack`: $\delta(\epsilon) + s$.

    Formal guarantee: given an event E of probability at least $1 - s$, `guarantee` holds, and whether E happens is decided by coins
    with the same law on both data sets (batch sizes, say, and not gradients). Joint convexity over those coins gives
    $(1-s)\,\delta(\epsilon) + s$. For an event that depends on the data this is NOT enough: it would cost $(1 + e^\epsilon)s$.
    """

    guarantee: Guarantee
    slack: float
    kind: ClassVar[str] = "with_slack"

    def __post_init__(self) -> None:
        if not isinstance(self.guarantee, Guarantee):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise outside("guarantee", self.guarantee, "a guarantee")
        freeze(self, slack=require_probability("slack", self.slack))

    def epsilon(self, delta: float) -> float:
        r"""$\epsilon$ of the inner guarantee at $\delta - s$, rounded down; infinity if $\delta < s$."""
        remaining = require_delta(delta) - self.slack
        return math.inf if remaining < 0.0 else self.guarantee.epsilon(max(round_down(remaining), 0.0) if self.slack > 0.0 else remaining)

    def delta(self, epsilon: float) -> float:
        """The inner one plus the slack."""
        inner = self.guarantee.delta(epsilon)
        return min(round_up(inner + self.slack), 1.0) if self.slack > 0.0 else inner

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """The inner ones plus the slack."""
        return above(self.guarantee.deltas(epsilons) + self.slack)

    def describe(self) -> str:
        """Such as `0.2442-GDP, plus 1e-09 in delta`."""
        return f"{self.guarantee.describe()}, plus {shown(self.slack)} in delta"
