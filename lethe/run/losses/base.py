r"""Loss: bounds on the curvature and gradient of one record's loss, and how they are known.

Curvature: gradient differences satisfy $\nabla f(x) - \nabla f(y) = H(x-y)$ with a symmetric $H$, $-m I \preceq H \preceq M I$;
$m$ = weak_convexity (negative when f is strongly convex), $M$ = smoothness.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from lethe.documents.specification import Specification
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
        known = [bound for bound in (self.gradient_bound, self.derived_gradient_bound) if bound is not None]
        return min(known, default=None)

    def may_exceed(self, norm: float) -> bool:
        r"""Whether a gradient may be longer than `norm`; where no bound is known, it may.

        The derived bound $G$ is rounded up, and a clip norm that is the bound itself need not be: $C^2 \ge G^2$ in whole fractions says
        that clipping never acts, where $C < G$ as floats.

        Args:
            norm: C > 0, in loss per parameter unit.
        """
        bound = self.known_gradient_bound
        if bound is None or bound <= norm:
            return bound is None
        squared = self.squared_gradient_bound
        return squared is None or not math.isfinite(norm) or Fraction(norm) ** 2 < squared

    def to_document(self) -> dict[str, Any]:
        """{kind: name, ...} without the fields left at their defaults."""
        return {"kind": self.kind, **self.model_dump(exclude_defaults=True)}
