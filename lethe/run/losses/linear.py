r"""Convex losses of linear models, $f_i(W) = l(W^\top u_i, y_i)$: values, slopes and curvatures in the scores, and bounds on each.

Base of all losses of linear models; trainers (`train.linear`), minimisers and estimators call it with scores $W^\top u$. u is a record's
features, y its target, R the bound on $\|u\|$, l' the slope (the derivative in the scores).

With $\|u\| \le R$ the gradient $u\,l'^\top$ has norm at most $R\,\|l'\|$, and the Hessian $uu^\top \otimes l''$ has no eigenvalue above
$R^2\|l''\|$; both bounds hold for every target. They are as true as the bound on the norm of the features: `evidence="enforced"` says that
the code projects every feature vector (as `lethe.train`, `lethe.mechanisms` and `lethe.estimators` do), "declared" that someone says so.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from lethe.calculus.domains import FloatArray, outside, require_positive
from lethe.errors import InputError
from lethe.run.losses.base import Loss
from lethe.run.losses.curvatures import Curvatures


def real_targets(values: Any, *, count: int) -> FloatArray:
    """Targets as floats, shape (n,); InputError unless they are `count` finite numbers."""
    needed = f"{count} finite numbers in one row, one for each record"
    try:
        array = np.array(values)
    except (TypeError, ValueError):
        raise outside("targets", type(values).__name__, needed) from None
    if array.dtype.kind not in "iuf" or array.shape != (count,):
        raise outside("targets", f"array of shape {array.shape} and type {array.dtype}", needed)
    finite = np.isfinite(array)
    if not finite.all():
        first = int(np.argmin(finite))
        raise outside(f"targets[{first}]", float(array[first]), "a finite number")
    return array.astype(np.float64)


def class_targets(values: Any, *, count: int, classes: int) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Class labels 0, ..., classes - 1 of n records as integers, shape (n,); the number of classes, >= 2, is public."""
    table = real_targets(values, count=count)
    wrong = (table != np.floor(table)) | (table < 0) | (table >= classes)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InputError(
            f"targets[{first}] = {table[first]:g}; it needs a class, a whole number from 0 to {classes - 1}.",
            source="the argument targets",
            remedy="number the classes by a public list",
        )
    return table.astype(np.intp)


# One rounding up after a product and a square root: the derived constants stay upper bounds.
_UP, _UP_TWICE = 1 + 2**-51, 1 + 2**-50
# Between these squares and products neither vanish nor overflow.
SMALLEST, LARGEST = 1e-100, 1e100


class LinearLoss(Loss):
    r"""A convex loss of a linear model with k scores and a Lipschitz slope, on features of bounded norm.

    Of l a subclass says: $\|l'\| \le c\sqrt s$ by `slope_scale` c and `slope_entries` s, the largest eigenvalue of $l''$ by
    `curvature_bound`, its largest trace by `curvature_trace`, its rank by `curvature_rank`.

    Args:
        feature_norm: R > 0, which no feature vector's norm exceeds.
        intercept: whether a constant feature 1 is appended: the bound on the squared norm grows by 1.
    """

    enforceable: ClassVar[bool] = True
    name: ClassVar[str]  # in a sentence: "the ... loss"
    one_sided: ClassVar[bool] = True  # for a fixed record no entry of the slope ever changes its sign
    numeric_targets: ClassVar[bool] = False  # targets are numbers, not classes
    envelope_error: ClassVar[float] = 0.0  # how far `envelope_slopes` may be off, as a share of the bound, beside rounding
    quadratic_pieces: ClassVar[bool] = False  # the second derivative is constant between jumps, so the third is 0 almost everywhere
    feature_norm: float = Field(gt=0)
    intercept: bool = False

    @model_validator(mode="after")
    def _not_below_what_follows(self) -> LinearLoss:
        require_in_range("feature_norm", self.feature_norm)
        derived = self.derived_gradient_bound
        if self.gradient_bound is not None and self.gradient_bound < derived:
            raise InputError(
                f"gradient_bound: got {self.gradient_bound:g}; {self.summary} with features of this norm reaches {derived:g}.",
                remedy="leave gradient_bound out, and set clip_norm to clip gradients to a smaller norm.",
            )
        return self

    @property
    def slope_entries(self) -> int:
        r"""s in $\|l'\| \le c\sqrt s$."""
        return 1

    @property
    def slope_scale(self) -> float:
        r"""c in $\|l'\| \le c\sqrt s$, in loss per score."""
        return 1.0

    @property
    def slope_bound(self) -> float:
        r"""The largest norm of $l'$, rounded up."""
        root = 1.0 if self.slope_entries == 1 else math.sqrt(self.slope_entries) * _UP_TWICE
        return self.slope_scale * root

    @property
    @abstractmethod
    def curvature_bound(self) -> float:
        """The largest eigenvalue of $l''$."""

    @property
    def curvature_trace(self) -> float:
        """The largest trace of $l''$."""
        return self.curvature_bound

    @property
    def curvature_rank(self) -> int:
        """The rank of $l''$."""
        return 1

    @property
    def squared_feature_norm(self) -> float:
        """$R^2$, the intercept's constant feature included, rounded up."""
        return (self.feature_norm**2 + (1.0 if self.intercept else 0.0)) * _UP

    @property
    def row_norm(self) -> float:
        """R, the intercept's constant feature included, rounded up."""
        return row_norm(self.feature_norm, intercept=self.intercept)

    @property
    def curvature(self) -> tuple[float, float]:
        """(0, $R^2$ times the largest eigenvalue of $l''$)."""
        return 0.0, self.squared_feature_norm * self.curvature_bound

    @property
    def smoothness(self) -> float:
        """M from `row_norm`, rounded up once more than in `curvature`: for solvers, and steps that must not exceed 2/M by rounding."""
        return self.row_norm * self.row_norm * self.curvature_bound * _UP_TWICE

    @property
    def derived_gradient_bound(self) -> float:
        r"""$c\sqrt s\,R$, rounded up."""
        return math.sqrt(self.slope_entries * self.squared_feature_norm) * self.slope_scale * _UP

    @property
    def row_gradient_bound(self) -> float:
        """The gradient bound from `row_norm`, rounded up once more: what noise is scaled to where the minimiser is perturbed."""
        return self.row_norm * self.slope_bound * _UP_TWICE

    @property
    def squared_gradient_bound(self) -> Fraction:
        r"""$c^2sR^2$, exactly."""
        squared = Fraction(self.feature_norm) ** 2 + (1 if self.intercept else 0)
        return self.slope_entries * Fraction(self.slope_scale) ** 2 * squared

    @property
    def outputs(self) -> int:
        """k, the scores of one record."""
        return 1

    @property
    @abstractmethod
    def target_classes(self) -> int | None:
        """K, where targets are the classes 0, ..., K - 1; None where they are numbers."""

    @abstractmethod
    def for_classes(self, classes: int | None) -> Self:
        """This loss with the number K of its classes, which is public, known; None: nothing is said besides the loss."""

    def as_recorded(self) -> Self:
        """This loss as a run names it: without a number of classes that no bound depends on."""
        return self

    def on_rows(self, norm: float) -> Self:
        """This loss on rows that the code projects to `norm` > 0, the constant feature included."""
        return self.model_copy(update={"feature_norm": norm, "intercept": False, "evidence": "enforced"})

    @abstractmethod
    def check_targets(self, values: Any, count: int) -> FloatArray:
        """Targets as the other methods take them, shape (n,); InputError for any that the loss does not know."""

    @abstractmethod
    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """l, shape (n,), for scores of shape (n, k)."""

    @abstractmethod
    def slopes(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """$l'$, shape (n, k)."""

    @classmethod
    def has_envelope(cls) -> bool:
        """Whether `envelope_slopes` is known: of one score it is, by clamping."""
        return cls.scalar

    def envelope_slopes(self, scores: FloatArray, targets: FloatArray, bounds: FloatArray) -> FloatArray:
        r"""$l_c'$ of the Lipschitz envelope $l_c(s) = \min_t l(s - t) + c\|t\|$ of every record, shape (n, k); of one score: $l'$ clamped.

        Args:
            scores: s, shape (n, k).
            targets: shape (n,).
            bounds: c > 0 of each record, shape (n,), in loss per score; infinity: none.
        """
        if not self.has_envelope():
            raise InputError(
                f"loss.kind: got {self.kind}; the envelope of the {self.summary} is not known here.",
                source="loss.kind",
                remedy="take softmax_regression, or a loss of one score.",
            )
        reach = bounds[:, None]
        return np.clip(self.slopes(scores, targets), -reach, reach)

    def envelope_smoothness(self, clip_norm: float) -> float:
        r"""The largest curvature of $W \mapsto l_c(W^\top u)$ for any $\|u\| \le R$, $c = C/\|u\|$: at most the loss's, rounded up."""
        return self.curvature[1]

    @abstractmethod
    def curvatures(self, scores: FloatArray, targets: FloatArray) -> Curvatures:
        """$l''$ of every record."""

    @abstractmethod
    def decide(self, scores: FloatArray) -> np.ndarray[Any, np.dtype[Any]]:
        """The predicted class, or value, shape (n,)."""


class TwoClassLoss(LinearLoss):
    """A loss of one score and a class 0 or 1."""

    scalar: ClassVar[bool] = True

    @property
    def target_classes(self) -> int:
        """2."""
        return 2

    def for_classes(self, classes: int | None) -> Self:
        """This loss itself, which has two."""
        if isinstance(classes, bool) or classes not in (None, 2):
            raise InputError(f"classes: got {classes!r}; {self.summary} has 2.", remedy="leave classes out, or choose softmax_regression.")
        return self

    def check_targets(self, values: Any, count: int) -> FloatArray:
        """Classes 0 and 1."""
        return class_targets(values, count=count, classes=2).astype(np.float64)

    def decide(self, scores: FloatArray) -> np.ndarray[Any, np.dtype[Any]]:
        """1 where the score is positive."""
        return (scores[:, 0] > 0.0).astype(np.int64)


class NumericLoss(LinearLoss):
    """A loss of one score and a number."""

    scalar: ClassVar[bool] = True
    one_sided: ClassVar[bool] = False
    numeric_targets: ClassVar[bool] = True

    @property
    def target_classes(self) -> None:
        """None: targets are numbers."""
        return None

    def for_classes(self, classes: int | None) -> Self:
        """This loss itself, which has no classes."""
        if classes is not None:
            raise InputError(f"classes: got {classes!r}; {self.name} has none.", remedy="leave classes out, or choose softmax_regression.")
        return self

    def check_targets(self, values: Any, count: int) -> FloatArray:
        """Any finite numbers."""
        return real_targets(values, count=count)


class ManyClassLoss(LinearLoss):
    """A loss of one score for each of K classes.

    Args:
        classes: K >= 2, public; None: said where it is trained.
    """

    classes: int | None = Field(default=None, ge=2)

    @property
    def target_classes(self) -> int:
        """K; InputError where it was not said."""
        if self.classes is None:
            raise outside("classes", None, "the public number of classes, an integer >= 2")
        return self.classes

    @property
    def outputs(self) -> int:
        """K."""
        return self.target_classes

    def for_classes(self, classes: int | None) -> Self:
        """This loss with K = `classes`, or with the K that it has."""
        chosen = self.classes if classes is None else classes
        if isinstance(chosen, bool) or not isinstance(chosen, int) or chosen < 2:
            raise InputError(
                f"classes: got {chosen!r}; {self.summary} needs their public number, an integer >= 2.",
                remedy="give the classes that could occur, not those that do: which classes occur is private.",
            )
        if self.classes not in (None, chosen):
            raise InputError(
                f"classes: got {chosen}; the loss has {self.classes}.", source="loss.classes", remedy="say the same number twice, or once."
            )
        return self if self.classes == chosen else self.model_copy(update={"classes": chosen})

    def as_recorded(self) -> Self:
        """Without K."""
        return self if self.classes is None else self.model_copy(update={"classes": None})

    def check_targets(self, values: Any, count: int) -> FloatArray:
        """Classes 0, ..., K - 1."""
        return class_targets(values, count=count, classes=self.target_classes).astype(np.float64)

    def decide(self, scores: FloatArray) -> np.ndarray[Any, np.dtype[Any]]:
        """The class with the largest score."""
        return scores.argmax(axis=1)


def row_norm(feature_norm: float, *, intercept: bool) -> float:
    r"""The largest norm of a projected row, the constant feature included: $\sqrt{R^2 + 1}$, rounded up, or R."""
    radius = require_positive("feature_norm", feature_norm)
    return math.sqrt(radius * radius + 1.0) * _UP_TWICE if intercept else radius


def require_in_range(name: str, value: float) -> None:
    """Raise InputError unless squares and products of `value` neither vanish nor overflow."""
    if not SMALLEST <= value <= LARGEST:
        raise InputError(f"{name}: got {value:g}; it needs a number from {SMALLEST:g} to {LARGEST:g}.")


def require_linear_loss(loss: object) -> LinearLoss:
    """`loss` itself, or InputError."""
    if isinstance(loss, LinearLoss):
        return loss
    raise InputError(
        f"loss: got {loss.kind if isinstance(loss, Loss) else repr(loss)}; it needs a loss of a linear model.",
        source="loss",
        remedy="give one with a feature_norm, such as Logistic(feature_norm=1.0), or train the model itself with lethe.train.fit.",
    )
