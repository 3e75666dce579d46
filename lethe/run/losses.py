r"""What is known of one record's loss f: its curvature, its gradient, and how that is known.

Curvature: gradient differences satisfy $\nabla f(x) - \nabla f(y) = H(x-y)$ with a symmetric $H$, $-m I \preceq H \preceq M I$;
$m$ = weak_convexity (negative when f is strongly convex), $M$ = smoothness.

The regression kinds derive these facts from the norm of the features. They are as true as the bound on the norm:
`evidence="enforced"` says the data pipeline projects every feature vector (as `lethe.train` and `lethe.estimators` do), "declared" that
someone says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from lethe.documents.specification import Missing, Noun, from_tagged
from lethe.errors import InputError

Evidence = Literal["declared", "enforced"]

# One rounding up after a product and a square root: the derived constants stay upper bounds.
_UP = 1 + 2**-51
# Between these squares and products neither vanish nor overflow.
_SMALLEST, _LARGEST = 1e-100, 1e100


class Loss(Noun):
    """A loss of which only what its fields say is known.

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
    def known_gradient_bound(self) -> float | None:
        """The smaller of the given and the derived bound, None when neither exists."""
        known = [bound for bound in (self.gradient_bound, self.derived_gradient_bound) if bound is not None]
        return min(known, default=None)

    def to_document(self) -> dict[str, Any]:
        """{kind: name, ...} without the fields left at their defaults."""
        return {"kind": self.kind, **self.model_dump(exclude_defaults=True)}


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


class _Regression(Loss):
    """A linear model on features of norm at most `feature_norm`; with an intercept the bound on the squared norm grows by 1."""

    enforceable: ClassVar[bool] = True
    feature_norm: float = Field(gt=0)
    intercept: bool = False

    @model_validator(mode="after")
    def _not_below_what_follows(self) -> _Regression:
        _require_in_range("feature_norm", self.feature_norm)
        derived = self.derived_gradient_bound
        if derived is not None and self.gradient_bound is not None and self.gradient_bound < derived:
            raise InputError(
                f"gradient_bound: got {self.gradient_bound:g}; {self.summary} with features of this norm reaches {derived:g}.",
                remedy="leave gradient_bound out, and set clip_norm to clip gradients to a smaller norm.",
            )
        return self

    @property
    def squared_feature_norm(self) -> float:
        """$R^2$, the intercept's constant feature included."""
        return (self.feature_norm**2 + (1.0 if self.intercept else 0.0)) * _UP


class Logistic(_Regression):
    r"""$f(x) = \log(1 + e^{-y\langle u, x\rangle})$, y = +-1: $\|\nabla f\| \le R$, $M \le R^2/4$."""

    scalar: ClassVar[bool] = True
    summary: ClassVar[str] = "logistic regression"
    kind: ClassVar[str] = "logistic_regression"

    @property
    def curvature(self) -> tuple[float, float]:
        """(0, R^2/4)."""
        return 0.0, self.squared_feature_norm / 4

    @property
    def derived_gradient_bound(self) -> float:
        """R."""
        return math.sqrt(self.squared_feature_norm) * _UP


class Softmax(_Regression):
    r"""$f(X) = -\log\mathrm{softmax}(X^\top u)_y$: $\|\nabla f\| = \|u\|\,\|p - e_y\| \le \sqrt2 R$, $M \le R^2/2$."""

    summary: ClassVar[str] = "softmax regression"
    kind: ClassVar[str] = "softmax_regression"

    @property
    def curvature(self) -> tuple[float, float]:
        """(0, R^2/2)."""
        return 0.0, self.squared_feature_norm / 2

    @property
    def derived_gradient_bound(self) -> float:
        """sqrt(2) R."""
        return math.sqrt(2 * self.squared_feature_norm) * _UP


class LeastSquares(_Regression):
    r"""Squared error whose residual is truncated at $\pm B$ (Huber's loss): $\|\nabla f\| \le R B$, $M \le R^2$, convex."""

    scalar: ClassVar[bool] = True
    summary: ClassVar[str] = "least squares, truncated residual"
    kind: ClassVar[str] = "least_squares"
    residual_bound: float = Field(gt=0)

    @property
    def curvature(self) -> tuple[float, float]:
        """(0, R^2)."""
        return 0.0, self.squared_feature_norm

    @property
    def derived_gradient_bound(self) -> float:
        """R B."""
        return math.sqrt(self.squared_feature_norm) * self.residual_bound * _UP


class TruncatedLogistic(_Regression):
    r"""Logistic regression whose slope is cut: $\varphi_c(y\langle u, x\rangle)$, $\varphi_c'(m) = -\min(1/(1+e^m), c)$.

    $\|\nabla f\| \le cR$, $M \le R^2/4$, convex: the lemma is in `lethe.mechanisms.losses.truncated_losses`.

    Args:
        cut: c in (0, 1].
    """

    scalar: ClassVar[bool] = True
    summary: ClassVar[str] = "logistic regression, slope cut"
    kind: ClassVar[str] = "truncated_logistic_regression"
    cut: float = Field(gt=0, le=1)

    @property
    def curvature(self) -> tuple[float, float]:
        """(0, R^2/4)."""
        return 0.0, self.squared_feature_norm / 4

    @property
    def derived_gradient_bound(self) -> float:
        """c R."""
        return math.sqrt(self.squared_feature_norm) * self.cut * _UP


class TruncatedSoftmax(_Regression):
    r"""$\varphi_c$ of the margin $s_y - \log\sum_{j\ne y}e^{s_j}$, $s = X^\top u$: softmax regression whose slope is cut.

    $\|\nabla f\| \le \sqrt2\,cR$, $M \le R^2/2$, convex: the lemma is in `lethe.mechanisms.losses.truncated_losses`.

    Args:
        cut: c in (0, 1].
    """

    summary: ClassVar[str] = "softmax regression, slope cut"
    kind: ClassVar[str] = "truncated_softmax_regression"
    cut: float = Field(gt=0, le=1)

    @property
    def curvature(self) -> tuple[float, float]:
        """(0, R^2/2)."""
        return 0.0, self.squared_feature_norm / 2

    @property
    def derived_gradient_bound(self) -> float:
        """sqrt(2) c R."""
        return math.sqrt(2 * self.squared_feature_norm) * self.cut * _UP


class _Hinge(_Regression):
    """What hinges with a rounded corner share."""

    width: float = Field(gt=0)

    @model_validator(mode="after")
    def _of_a_width(self) -> _Hinge:
        _require_in_range("width", self.width)
        return self

    @property
    def curvature(self) -> tuple[float, float]:
        """(0, R^2/(2h))."""
        return 0.0, self.squared_feature_norm / (2 * self.width) * _UP


class SmoothedHinge(_Hinge):
    r"""$\max(0, 1 - y\langle u, x\rangle)$, its corner a parabola within $\pm h$: $\|\nabla f\| \le R$, $M \le R^2/(2h)$, convex.

    Args:
        width: h > 0, in margins.
    """

    scalar: ClassVar[bool] = True
    summary: ClassVar[str] = "hinge, corner rounded"
    kind: ClassVar[str] = "smoothed_hinge"

    @property
    def derived_gradient_bound(self) -> float:
        """R."""
        return math.sqrt(self.squared_feature_norm) * _UP


class OneVersusRest(_Hinge):
    r"""The sum of K such hinges, one class against the others: $\|\nabla f\| \le \sqrt K R$, $M \le R^2/(2h)$, convex.

    Each has weights of its own, so curvatures do not add up.

    Args:
        classes: K from 2 to 10000.
        width: h > 0, in margins.
    """

    summary: ClassVar[str] = "one-versus-rest hinges, corners rounded"
    kind: ClassVar[str] = "one_versus_rest_hinge"
    classes: int = Field(ge=2, le=10_000)

    @property
    def derived_gradient_bound(self) -> float:
        """sqrt(K) R."""
        return math.sqrt(self.classes * self.squared_feature_norm) * _UP


def _require_in_range(name: str, value: float) -> None:
    if not _SMALLEST <= value <= _LARGEST:
        raise InputError(f"{name}: got {value:g}; it needs a number from {_SMALLEST:g} to {_LARGEST:g}.")


LOSSES: dict[str, type[Loss]] = {
    "unknown": Unknown,
    "smooth": Smooth,
    "holder": Holder,
    "weakly_convex": WeaklyConvex,
    "convex": Convex,
    "strongly_convex": StronglyConvex,
    "generalised_linear": GeneralisedLinear,
    "logistic_regression": Logistic,
    "softmax_regression": Softmax,
    "least_squares": LeastSquares,
    "truncated_logistic_regression": TruncatedLogistic,
    "truncated_softmax_regression": TruncatedSoftmax,
    "smoothed_hinge": SmoothedHinge,
    "one_versus_rest_hinge": OneVersusRest,
}


def parse_loss(value: object) -> Loss:
    """Read {kind: name, ...}.

    Raises:
        InputError: an unknown kind or a bad parameter.
    """
    return from_tagged(value, tag="kind", classes=LOSSES)
