r"""Loss: bounds on the curvature and gradient of one record's loss, and how they are known; losses of which nothing else is known.

A Run holds a loss; theorems ask its curvature and gradient bound. f is one record's loss.

Curvature: gradient differences satisfy $\nabla f(x) - \nabla f(y) = H(x-y)$ with a symmetric $H$, $-m I \preceq H \preceq M I$;
$m$ = weak_convexity (negative when f is strongly convex), $M$ = smoothness.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from lethe.documents.specification import Missing, Specification
from lethe.errors import InputError

Evidence = Literal["declared", "enforced"]


class Loss(Specification):
    """A loss of which nothing but the stated bounds is known.

    Args:
        gradient_bound: $G \\ge \\|\\nabla f(x)\\|$ for every record and every x, in loss per parameter unit; None: no bound known.
        evidence: who vouches for the fields, "declared" (the user) or "enforced" (the code that trains).
    """

    enforceable: ClassVar[bool] = False  # the code that trains can make the facts true by projecting features
    scalar: ClassVar[bool] = False  # f(x) = l(<u, x>) with a scalar l: clipping then keeps the curvature
    summary: ClassVar[str]
    kind: ClassVar[str]
    gradient_bound: float | None = Field(default=None, gt=0)
    evidence: Evidence = "declared"

    @model_validator(mode="after")
    def _enforced_by_something(self) -> Loss:
        if self.evidence == "enforced" and not self.enforceable:
            raise InputError(
                f"evidence: got 'enforced'; nothing enforces what is said of a loss of kind {self.kind}.",
                remedy="say declared, or use a regression kind, whose features the training projects.",
            )
        return self

    @property
    def curvature(self) -> tuple[float, float] | None:
        """(m, M), or None when no smoothness is known."""
        return None

    @property
    def derived_gradient_bound(self) -> float | None:
        """The bound that the other fields imply, if any."""
        return None

    @property
    def squared_gradient_bound(self) -> Fraction | None:
        """The square of `derived_gradient_bound` without its rounding, if there is one."""
        return None

    @property
    def known_gradient_bound(self) -> float | None:
        """The smaller of the given and the derived bound, None when neither exists."""
        bounds = [bound for bound in (self.gradient_bound, self.derived_gradient_bound) if bound is not None]
        return min(bounds, default=None)

    def may_exceed(self, norm: float) -> bool:
        r"""Whether a gradient may be longer than `norm`, in loss per parameter unit; where no bound is known, it may.

        The derived bound $G$ is rounded up, and a clip norm that is the bound itself need not be: $C^2 \ge G^2$ in whole fractions says
        that clipping never acts, where $C < G$ as floats.
        """
        bound = self.known_gradient_bound
        if bound is None or bound <= norm:
            return bound is None
        squared = self.squared_gradient_bound
        return squared is None or not math.isfinite(norm) or Fraction(norm) ** 2 < squared

    def to_document(self) -> dict[str, Any]:
        """{kind: name, ...} without the fields left at their defaults."""
        return {"kind": self.kind, **self.model_dump(exclude_defaults=True)}


class Unknown(Loss):
    """Nothing is known: composition, or one step of a bounded domain, is all that can be certified."""

    summary: ClassVar[str] = "unknown loss"
    kind: ClassVar[str] = "unknown"


class Smooth(Loss):
    """Any loss whose gradient is `smoothness`-Lipschitz, non-convex ones included: m = M.

    Examples:
        >>> lethe.losses.Smooth(smoothness=2.0).curvature
        (2.0, 2.0)
    """

    summary: ClassVar[str] = "smooth loss"
    kind: ClassVar[str] = "smooth"
    smoothness: float = Field(ge=0)

    @property
    def curvature(self) -> tuple[float, float]:
        """(M, M)."""
        return self.smoothness, self.smoothness


class Holder(Loss):
    r"""Any loss with a Hölder gradient: $\|\nabla f(x) - \nabla f(y)\| \le H\|x - y\|^p$ for all x and y.

    With p = 1 a smooth one, m = M = H. Of a `convex` one p may be 0, and its gradient one of several in a point, of which the
    training takes the same whenever it comes there, as PyTorch does: no two differ by more than H, which is 2G if no less is known.

    Examples:
        >>> lethe.losses.Holder(constant=1.0, exponent=0.5, convex=True).convex
        True
    """

    summary: ClassVar[str] = "loss with a Hölder gradient"
    kind: ClassVar[str] = "holder"
    constant: float = Field(ge=0)
    exponent: float = Field(ge=0, le=1)
    convex: bool = False

    @model_validator(mode="after")
    def _continuous(self) -> Holder:
        if self.exponent == 0.0 and not self.convex:
            raise InputError("exponent: got 0; it needs to be > 0 unless the loss is convex.", remedy="say convex: true, or kind: unknown.")
        return self

    @property
    def curvature(self) -> tuple[float, float] | None:
        """(H, H) where p = 1, (0, H) if convex besides, else None."""
        return (0.0 if self.convex else self.constant, self.constant) if self.exponent == 1.0 else None


class WeaklyConvex(Loss):
    """Curvature in [-weak_convexity, smoothness].

    Examples:
        >>> lethe.losses.WeaklyConvex(weak_convexity=0.5, smoothness=2.0).curvature
        (0.5, 2.0)
    """

    summary: ClassVar[str] = "weakly convex loss"
    kind: ClassVar[str] = "weakly_convex"
    weak_convexity: float = Field(ge=0)
    smoothness: float = Field(ge=0)

    @property
    def curvature(self) -> tuple[float, float]:
        """(m, M)."""
        return self.weak_convexity, self.smoothness


class Convex(Loss):
    """Convex and smooth: curvature in [0, smoothness].

    Examples:
        >>> lethe.losses.Convex(smoothness=2.0).curvature
        (0.0, 2.0)
    """

    summary: ClassVar[str] = "convex loss"
    kind: ClassVar[str] = "convex"
    smoothness: float = Field(ge=0)

    @property
    def curvature(self) -> tuple[float, float]:
        """(0, M)."""
        return 0.0, self.smoothness


class StronglyConvex(Loss):
    """Curvature in [strong_convexity, smoothness]: the regularisation is inside each record's loss (and is clipped with it).

    Examples:
        >>> lethe.losses.StronglyConvex(strong_convexity=0.1, smoothness=2.0).curvature
        (-0.1, 2.0)
    """

    summary: ClassVar[str] = "strongly convex loss"
    kind: ClassVar[str] = "strongly_convex"
    strong_convexity: float = Field(gt=0)
    smoothness: float = Field(gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> StronglyConvex:
        if self.strong_convexity > self.smoothness:
            raise InputError(f"strong_convexity: got {self.strong_convexity:g}; it cannot exceed smoothness = {self.smoothness:g}.")
        return self

    @property
    def curvature(self) -> tuple[float, float]:
        """(-strong_convexity, M)."""
        return -self.strong_convexity, self.smoothness


_CONVEXITY = Missing(
    meaning="whether the scalar loss is convex must be said: its second derivative is at least -weak_convexity.",
    remedy="write weak_convexity: 0 for a convex loss, and the same as smoothness where nothing is known.",
)


class GeneralisedLinear(Loss):
    """f(x) = l(<u, x>) with a scalar l: clipping only truncates l', so the clipped loss keeps the curvature bounds."""

    scalar: ClassVar[bool] = True
    summary: ClassVar[str] = "generalised linear loss"
    kind: ClassVar[str] = "generalised_linear"
    _missing: ClassVar[Mapping[str, Missing]] = {"weak_convexity": _CONVEXITY}

    weak_convexity: float = Field(ge=0)
    smoothness: float = Field(ge=0)

    @property
    def curvature(self) -> tuple[float, float]:
        """(m, M)."""
        return self.weak_convexity, self.smoothness
