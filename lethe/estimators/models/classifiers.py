"""Private classifiers: logistic regression, binary or multinomial, softmax regression, and a linear support vector machine.

Called by users; all are `PrivateLinearModel` with a loss of `lethe.run.losses`, and here only labels, class weights and predictions are
dealt with.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy import special
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags

from lethe.calculus.domains import as_number, outside, require_positive
from lethe.errors import InputError
from lethe.estimators.inputs.tables import SPARSE, bounded_weights, listed_classes, public_labels, read_table, read_table_and_targets
from lethe.estimators.models.linear_model import PrivateLinearModel
from lethe.estimators.options import options_of
from lethe.estimators.partitioned.tables import examined_labels
from lethe.estimators.private_estimator import with_constructor
from lethe.mechanisms.base import Array
from lethe.partitions.dask_tables import table_in_blocks
from lethe.run.losses import Logistic, OneVersusRest, SmoothedHinge, Softmax
from lethe.run.losses.linear import LinearLoss


@with_constructor
class PrivateClassifier(ClassifierMixin, PrivateLinearModel, ABC):
    r"""Base class of the private classifiers.

    $$\min_w \sum_i w_i\,l(\langle w, x_i\rangle, y_i) + \frac{1}{2C}\|w\|^2$$

    as far as privacy and the mechanism allow; some mechanisms need a larger ridge, and take it.

    Args:
        C: as in scikit-learn, > 0; infinity: no ridge of its own.
        classes: the labels that could occur, public; None: those in y, which the report then says is declared.
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `PrivateEstimator`.
        feature_norm, fit_intercept: as of `PrivateLinearModel`.
    """

    C: float = 1.0
    classes: Any = None
    class_weight: ClassVar[Any] = None  # a parameter of those that have probabilities

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # Of a few hundred records nobody learns much in private.
        tags.classifier_tags.poor_score = True
        return tags

    @abstractmethod
    def _loss(self, classes: int) -> LinearLoss:
        """The loss for so many classes, on rows of norm at most 1."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, users: Any = None) -> Self:
        """Train on records X of shape (n, d), an array, a frame or a CSR table, with labels y of shape (n,).

        Args:
            X: features; or a table in blocks: a table of `lethe.partitions`, or a DataFrame or an Array of Dask.
            y: labels; of a table in blocks the name of their column, or a collection of Dask in the same partitions.
            sample_weight: at most max_weight each; None: all 1. They are private. Of a table in blocks the name of their column.
            users: the id of each row's user, whole numbers or texts: the certificate is then by users, all of whose rows may change
                together. A user's loss is the mean over its rows. Only runs train so; bounds need to be given. None: by records. Of a
                table in blocks the name of their column, and full batches alone.
        Raises:
            InputError, ValueError: data or parameters that cannot be used; nothing is released then.
        """
        blocks = table_in_blocks(X, y, weights_and_users=(sample_weight, users))
        if blocks is None:
            table, labels = read_table_and_targets(self, X, y, numeric=False, **SPARSE)
            classes, targets, how = public_labels(self.classes, labels)
        else:
            table, classes, targets, how = examined_labels(self, blocks, self.classes)
        by_class = _class_weights(self.class_weight, classes)
        if by_class is not None and blocks is not None:
            raise InputError("class_weight: labels in blocks are not weighed.", remedy="give a column sample_weight, and max_weight")
        strength = as_number("C", self.C, "a number > 0")
        if not strength > 0.0:
            raise outside("C", self.C, "a number > 0")
        grouped, records, chance = self._grouped(users, table)
        budget = self._budget(records)
        loss, alpha, public = self._loss(len(classes)), 1.0 / (strength * records), [listed_classes(how, classes)]
        if by_class is not None:  # over the largest, which changes nothing but the unit of the objective
            assert isinstance(targets, np.ndarray)
            weights = bounded_weights(sample_weight, count=len(targets), max_weight=(bound := options_of(self).max_weight))
            sample_weight = by_class[targets.astype(np.intp)] / by_class.max() * (1.0 if weights is None else bound * weights)
            alpha /= by_class.max()
            public.append(f"class_weight = {self.class_weight}")
        train = self._plan(table, loss, budget=budget, chance=chance, users=grouped, sample_weight=sample_weight, alpha=alpha)
        coefficients, intercepts = train(targets, loss, budget=budget, public=public)
        self.classes_ = classes
        if len(classes) == 2 and coefficients.shape[1] == 2:  # two scores say no more than their difference
            coefficients, intercepts = coefficients[:, 1:] - coefficients[:, :1], intercepts[1:] - intercepts[:1]
        self._release(np.ascontiguousarray(coefficients.T), intercepts.copy())
        return self

    def decision_function(self, X: Any) -> Array:
        """Scores, shape (n, K), or (n,) for two classes: positive for the second."""
        scores = self._scores(X)
        if getattr(self, "whitened_", None) is not None:
            scores = self.score_rule.projected(scores, read_table(self, X, reset=False, **SPARSE), self.coef_.T)
        return (scores + self.intercept_)[:, 0] if len(self.classes_) == 2 else scores + self.intercept_

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """The class of the largest score, shape (n,)."""
        scores = PrivateClassifier.decision_function(self, X)  # log-odds are in the same order
        return self.classes_[(scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)]


def _class_weights(class_weight: Any, classes: np.ndarray[Any, np.dtype[Any]]) -> Array | None:
    """Of each class, shape (K,); None where none were given."""
    if class_weight is None:
        return None
    if not isinstance(class_weight, Mapping):
        why = "; those of 'balanced' are read off the labels" if class_weight == "balanced" else ""
        remedy = "give rates that everybody knows, or pay for them: PrivateStandardScaler(bounds=(0, 1)) of columns y == class has mean_"
        raise InputError(f"class_weight: got {class_weight!r}; it needs public weights, {{class: number > 0}}{why}.", remedy=remedy)
    labels = classes.tolist()
    if unknown := [key for key in class_weight if key not in labels]:
        raise InputError(f"class_weight: {unknown[0]!r} is none of the classes {labels}.", remedy="name classes alone")
    return np.array([require_positive(f"class_weight[{label!r}]", class_weight.get(label, 1.0)) for label in labels])


@with_constructor
class LogisticRegression(PrivateClassifier):
    """Logistic regression for two classes, and softmax regression for more, as in scikit-learn.

    `X @ coef_.T + intercept_` are scores under the loss that was trained on; where its slope is bounded they are no log-odds.

    Args:
        class_weight: public weights {class: number > 0} of a class's records, times their own; 1 where none is given. Only runs train so.
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `PrivateEstimator`.
        C, classes, feature_norm, fit_intercept: as of `PrivateClassifier`.

    Examples:
        >>> import numpy as np
        >>> from lethe.estimators import LogisticRegression
        >>> X = np.random.default_rng(0).random((500, 3)) / 2
        >>> y = (X[:, 0] > 0.25).astype(int)
        >>> model = LogisticRegression(epsilon=2.0, delta=1e-4, feature_norm=1.0, classes=[0, 1]).fit(X, y)
        >>> model.epsilon_ <= 2.0, model.coef_.shape
        (True, (1, 3))
    """

    class_weight: Any = None  # pyright: ignore[reportIncompatibleVariableOverride, reportIncompatibleUnannotatedOverride]

    def _loss(self, classes: int) -> LinearLoss:
        return Logistic(feature_norm=1.0) if classes == 2 else Softmax(feature_norm=1.0, classes=classes)

    def decision_function(self, X: Any) -> Array:
        """Log-odds of the second of two classes, shape (n,), or logarithms of probabilities, shape (n, K): what `predict_proba` is of."""
        return self.score_rule.log_probabilities(super().decision_function(X), read_table(self, X, reset=False, **SPARSE))

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, shape (n, K)."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Array:
        """Their logarithms."""
        scores = self.decision_function(X)
        return scores if scores.ndim == 2 else np.stack([special.log_expit(-scores), special.log_expit(scores)], axis=1)


class SoftmaxRegression(LogisticRegression):
    """Softmax regression with one score a class, also for two.

    Args: as of `LogisticRegression`.
    """

    def _loss(self, classes: int) -> LinearLoss:
        return Softmax(feature_norm=1.0, classes=classes)


@with_constructor
class LinearSVC(PrivateClassifier):
    r"""A linear classifier by margins.

    $$\min_w \sum_i w_i\,h(z_i\langle w, x_i\rangle) + \frac1{2C}\|w\|^2,\qquad z_i = \pm1,$$

    h the hinge, with a parabola where $|1 - zs| \le$ `width`: the corner rounded, which gives it the curvature that certificates need.

    More than two classes: one against the rest for each, all in one loss, whose gradient is $\sqrt K$ times as long; objective
    perturbation is not possible then. There are no probabilities.

    Args:
        width: > 0, of half the rounded corner, in margins.
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `PrivateEstimator`.
        C, classes, feature_norm, fit_intercept: as of `PrivateClassifier`.
    """

    width: float = 0.5

    def _loss(self, classes: int) -> LinearLoss:
        width = require_positive("width", self.width)
        if classes == 2:
            return SmoothedHinge(feature_norm=1.0, width=width)
        return OneVersusRest(feature_norm=1.0, classes=classes, width=width)
