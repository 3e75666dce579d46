"""Losses with declared bounds and no values, such as a network's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, model_validator

from lethe.documents.specification import Missing
from lethe.errors import InputError
from lethe.run.losses.base import Loss


class Unknown(Loss):
    """Nothing is known: composition, or one step of a bounded domain, is all that can be certified."""

    summary: ClassVar[str] = "unknown loss"
    kind: ClassVar[str] = "unknown"


class Smooth(Loss):
    """Any loss whose gradient is `smoothness`-Lipschitz, non-convex ones included: m = M."""

    summary: ClassVar[str] = "smooth loss"
    kind: ClassVar[str] = "smooth"
    smoothness: float = Field(ge=0)

    @property
    def curvature(self) -> tuple[float, float]:
        """(M, M)."""
        return self.smoothness, self.smoothness


class Holder(Loss):
    r"""Any loss with a Hölder gradient: $\|\nabla f(x) - \nabla f(y)\| \le H\|x - y\|^p$; with p = 1 a smooth one, m = M = H."""

    summary: ClassVar[str] = "loss with a Hölder gradient"
    kind: ClassVar[str] = "holder"
    constant: float = Field(ge=0)
    exponent: float = Field(gt=0, le=1)

    @property
    def curvature(self) -> tuple[float, float] | None:
        """(H, H) where p = 1, else None."""
        return (self.constant, self.constant) if self.exponent == 1.0 else None


class WeaklyConvex(Loss):
    """Curvature in [-weak_convexity, smoothness]."""

    summary: ClassVar[str] = "weakly convex loss"
    kind: ClassVar[str] = "weakly_convex"
    weak_convexity: float = Field(ge=0)
    smoothness: float = Field(ge=0)

    @property
    def curvature(self) -> tuple[float, float]:
        """(m, M)."""
        return self.weak_convexity, self.smoothness


class Convex(Loss):
    """Convex and smooth: curvature in [0, smoothness]."""

    summary: ClassVar[str] = "convex loss"
    kind: ClassVar[str] = "convex"
    smoothness: float = Field(ge=0)

    @property
    def curvature(self) -> tuple[float, float]:
        """(0, M)."""
        return 0.0, self.smoothness


class StronglyConvex(Loss):
    """Curvature in [strong_convexity, smoothness]: the regularisation is inside each record's loss (and is clipped with it)."""

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
