r"""Regularisers: a convex h that the proximal step adds to the loss, taken exactly, after the noise.

A Run names them as `regulariser`; `train.core.proximal` computes their steps, theorems use the facts. $\lambda$ is the step size, $\kappa$
the strength, u the unit of rounding, x the parameters, $x_g$ those of a group.

Three facts matter to a certificate: how strongly convex h is (it contracts), the diameter of its domain, and how much its step rounds.

Lemma (docs/theory.md, section 14). A computed step of a point of norm at most N is within `roundings` uN of the exact one, and several, one
after the other, within the sum of theirs. Proof. Exact steps are nonexpansive, so that errors before them come through no larger.
$\lambda\kappa$ and $1 + \lambda\kappa$ are rounded once each, and each coordinate of a ridge or an l1 part once more; where a threshold is
off by u of itself, a coordinate is by no more. A clamp is exact. A sum of squares is off by at most 49 roundings, its root by 25.5. For a
ball there are besides the largest entry, which is taken out first, the quotient, the product, and a comparison that decides otherwise:
below 32. (A radius that is rounded inward is that of a fixed smaller ball.) For a group, $\max(0, 1 - \lambda\kappa/\|x_g\|)$ is off by
27.5 of $\lambda\kappa/\|x_g\| \le 1$ and 2 of itself.

On a simplex of total t let $p_i = \max(x_i - \theta, 0)$, m of them positive. Newton's method looks for the $\theta$ with $\sum_ip_i = t$.
It adds up differences $\ge 0$, each rounded once, so that it is off by $E = 49ut$ at most. Let it stop at $\hat\theta$, let $\sigma$ be the
distance to the next number above, and $\delta = |\hat\theta - \theta|$. If $\hat\theta \le \theta$, the m coordinates and a others have
positive differences, of at least $\sigma$ each for the others, and they sum to at most $(m + a)\sigma/2 + E$ more than t. So $m\delta +
a\sigma \le (m + a)\sigma/2 + E$: $\delta \le \sigma/2 + E/m$, the excess is at most $m\sigma + 2E$, and the distance, at most the root of
$\delta$ times the excess, is at most $(m\sigma + 2E)/\sqrt{2m}$. If $\hat\theta > \theta$, the last step went too far, by E over the number
m' of positive differences before it: for $m' \ge m$ that is a distance of $E/\sqrt m$; else the coordinates that were not among these m'
sum to at most E, and the distance is at most $\sqrt2E/\sqrt{m'}$, where $t - E \le \sqrt{m'}\|p\|$. So it is at most $\sqrt2\cdot49u\|p\|$,
as $t \le \sqrt m\|p\|$, and 3 more for differences and results. What $\sigma$ and the rounding of steps add is of second order (up to
$2^{26}$ positive $p_i$), because the threshold is taken off all entries, which changes no $p_i$, and looked for again, next to 0. Results
are multiplied by a constant below 1, which keeps their true sum at most t.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from lethe.documents.specification import MOST_WHOLE, Specification, from_tagged, names_itself
from lethe.errors import InputError

__all__ = ["L1", "L1L2", "L2", "Ball", "Box", "GroupL1", "NuclearNorm", "Simplex"]

# Of norms and sums whose numbers go through 48 additions at most, as pairwise ones of 2^48 numbers do.
_OF_A_NORM, _OF_A_SUM = 32.0, 80.0


class Regulariser(Specification):
    r"""A convex, lower-semicontinuous h; the defaults here are those of a finite h without curvature.

    `roundings` is the k of a proximal step that is computed to within $kuN$, u the unit roundoff, where the norm of the parameters is at
    most N; infinity: it is not known.
    """

    kind: ClassVar[str]
    roundings: ClassVar[float] = math.inf

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a regulariser that inherits from another."""
        super().__pydantic_init_subclass__(**kwargs)
        names_itself(cls, "kind")

    @property
    def strong_convexity(self) -> float:
        r"""The largest $\kappa$ with $h - \frac{\kappa}{2}\|x\|^2$ convex."""
        return 0.0

    @property
    def diameter(self) -> float:
        """The diameter of h's domain in the Euclidean norm, over all parameters together."""
        return math.inf

    def to_document(self) -> dict[str, Any]:
        """{kind: name, ...}."""
        return {"kind": self.kind, **self.model_dump()}


class L2(Regulariser):
    r"""$h(x) = \frac{\kappa}{2}\|x\|^2$, $\kappa$ = strength.

    Examples:
        >>> lethe.regularisers.L2(0.1).strong_convexity
        0.1
    """

    kind: ClassVar[str] = "ridge"
    roundings: ClassVar[float] = 3.0
    strength: float = Field(gt=0, kw_only=False)

    @property
    def strong_convexity(self) -> float:
        """The strength."""
        return self.strength


class L1(Regulariser):
    r"""$h(x) = \kappa\|x\|_1$, $\kappa$ = strength.

    Examples:
        >>> lethe.regularisers.L1(0.1).diameter
        inf
    """

    kind: ClassVar[str] = "l1"
    roundings: ClassVar[float] = 2.0
    strength: float = Field(gt=0, kw_only=False)


class L1L2(Regulariser):
    r"""$h(x) = \kappa_1\|x\|_1 + \frac{\kappa_2}{2}\|x\|^2$.

    Examples:
        >>> lethe.regularisers.L1L2(ridge_strength=0.1, l1_strength=0.01).strong_convexity
        0.1
    """

    kind: ClassVar[str] = "elastic_net"
    roundings: ClassVar[float] = 5.0
    l1_strength: float = Field(gt=0)
    ridge_strength: float = Field(gt=0)

    @property
    def strong_convexity(self) -> float:
        """The ridge part's strength."""
        return self.ridge_strength


class GroupL1(Regulariser):
    r"""$h(x) = \kappa\sum_g\|x_g\|$ over groups of parameters."""

    kind: ClassVar[str] = "group_l1"
    roundings: ClassVar[float] = _OF_A_NORM
    strength: float = Field(gt=0, kw_only=False)


class NuclearNorm(Regulariser):
    r"""$h(X) = \kappa\|X\|_*$, the sum of singular values."""

    kind: ClassVar[str] = "nuclear_norm"
    roundings: ClassVar[float] = 128.0  # declared: of the algorithms for singular values no constant is proved
    strength: float = Field(gt=0, kw_only=False)


class Ball(Regulariser):
    """The parameters stay in the Euclidean ball of this radius about 0.

    Examples:
        >>> lethe.regularisers.Ball(2.0).diameter
        4.0
    """

    kind: ClassVar[str] = "ball"
    roundings: ClassVar[float] = _OF_A_NORM
    radius: float = Field(gt=0, kw_only=False)

    @property
    def diameter(self) -> float:
        """Twice the radius."""
        return 2.0 * self.radius


class Box(Regulariser):
    r"""Each of `dimension` parameters stays in [-half_width, half_width].

    Examples:
        >>> lethe.regularisers.Box(half_width=1.0, dimension=4).half_width
        1.0
    """

    kind: ClassVar[str] = "box"
    roundings: ClassVar[float] = 0.0
    half_width: float = Field(gt=0)
    dimension: int = Field(ge=1, le=MOST_WHOLE)

    @property
    def diameter(self) -> float:
        r"""$2 w \sqrt d$."""
        return 2.0 * self.half_width * math.sqrt(self.dimension) * (1 + 2**-51)


class Simplex(Regulariser):
    """The parameters are nonnegative and sum to `total`.

    Examples:
        >>> round(lethe.regularisers.Simplex(1.0).diameter, 3)
        1.414
    """

    kind: ClassVar[str] = "simplex"
    roundings: ClassVar[float] = _OF_A_SUM
    total: float = Field(gt=0, kw_only=False)

    @property
    def diameter(self) -> float:
        r"""$\sqrt2$ times the total: the distance between two corners."""
        return math.sqrt(2.0) * self.total * (1 + 2**-51)


REGULARISERS: dict[str, type[Regulariser]] = {
    regulariser.kind: regulariser for regulariser in (L2, L1, L1L2, GroupL1, NuclearNorm, Ball, Box, Simplex)
}


def parse_regulariser(value: Any) -> Regulariser | tuple[Regulariser, ...] | None:
    """Read null, {kind: name, ...} or a list of such mappings."""
    if value is None:
        return None
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        if not value:
            raise InputError("got an empty list; it needs null or at least one regulariser.")
        return tuple(from_tagged(entry, tag="kind", classes=REGULARISERS) for entry in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return from_tagged(value, tag="kind", classes=REGULARISERS)
