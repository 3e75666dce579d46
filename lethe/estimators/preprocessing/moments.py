"""PrivatePCA and PrivateWhitening: principal components and whitening by private second moments of columns or channels.

Called by users as steps of a pipeline: `PrivatePCA` and `PrivateWhitening` release noisy second moments (`lethe.mechanisms.moments`) and
derive their matrix from those alone.
"""

from dataclasses import field
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from lethe.calculus.domains import require_count, require_positive, require_switch
from lethe.estimators.features.record_features import Whitening, noise_floor, whitening_of
from lethe.estimators.inputs.ranges import private_norm
from lethe.estimators.inputs.tables import declared_norm, read_rows
from lethe.estimators.partitioned.tables import coordinates, norms_of
from lethe.estimators.preprocessing.scaler import PrivateTransformer, gaussian_cost
from lethe.estimators.private_estimator import with_constructor
from lethe.mechanisms.base import Array
from lethe.mechanisms.moments import channel_moments, noisy_mean, positions_of, second_moment

_MEAN_SHARE = 0.2  # of the squared mu: a mean has d entries, the second moments have d(d+1)/2


@with_constructor
class PrivatePCA(ClassNamePrefixFeaturesOutMixin, PrivateTransformer):
    r"""Principal components of $\frac1n\sum_i x_ix_i^\top + E - \hat m\hat m^\top$: noisy second moments, less those of a noisy mean.

    In fitting, rows are projected on a ball around 0, and noise is in proportion to its squared radius: scale and centre the features
    first. `transform` is linear in the rows as they come. Tables must be dense.

    Args:
        n_components: how many, at most d; None: all.
        feature_norm: a public bound R on the rows' norms, on which longer rows are projected; "auto": a private quantile of the norms,
            for a twentieth of the budget (in squared mu); None is refused.
        centre: whether to take a private mean off, for a fifth of the budget.
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `PrivateTransformer`.
    Attributes: those of `PrivateTransformer`; `components_` (orthonormal rows, strongest first), `explained_variance_` and
    `explained_variance_ratio_` as the noisy moments have them, `mean_`, `n_components_`, `feature_norm_`.

    Examples:
        >>> import numpy as np
        >>> from lethe.estimators import PrivatePCA
        >>> X = np.random.default_rng(0).random((500, 3)) / 2
        >>> pca = PrivatePCA(n_components=2, epsilon=1.0, delta=1e-4, feature_norm=1.0).fit(X)
        >>> pca.transform(X).shape
        (500, 2)
    """

    n_components: int | None = field(default=None, kw_only=False)
    feature_norm: float | str | None = "auto"
    centre: bool = True

    def fit(self, X: Any, y: Any = None) -> Self:
        """Release a norm where none is given, a mean, and second moments: of a table in blocks mean and second moments are two passes."""
        centred = require_switch("centre", self.centre)
        radius, (table, budget, generator) = declared_norm(self.feature_norm), self._start(X, y)
        records, columns = table.shape
        count = columns if self.n_components is None else require_count("n_components", self.n_components, high=columns)
        public = [f"{columns} columns, and their names", *([] if radius is None else [f"feature_norm = {radius:g}"])]
        self._pay(budget.as_gaussian, budget, records)
        noise: dict[str, Any] = {"neighbours": self.neighbours, "generator": generator}
        if radius is None:
            radius, cost = private_norm(norms_of(table), budget, generator=generator)
            budget = budget.with_spent(cost)
        mean = np.zeros(columns)
        if centred:
            mean, cost = noisy_mean(table, norm=radius, target=budget.share(_MEAN_SHARE), **noise)
            budget = budget.with_spent(cost)
        moments = second_moment(table, norm=radius, target=budget.settle(gaussian_cost), records=records, **noise)
        values, vectors = np.linalg.eigh(moments.matrix / records - np.outer(mean, mean))
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1].T
        signs = np.sign(vectors[np.arange(columns), np.abs(vectors).argmax(axis=1)])
        self.components_, self.mean_, self.feature_norm_ = np.ascontiguousarray((vectors * signs[:, None])[:count]), mean, radius
        self.n_components_ = self._n_features_out = count
        self.explained_variance_ = values[:count].copy()
        self.explained_variance_ratio_ = self.explained_variance_ / max(float(values.sum()), np.finfo(np.float64).tiny)
        why = [f"noisy second moments of rows of norm {radius:.3g}"]
        self._state([*budget.spent, moments.statement], budget, records, why=why, public=public)
        return self

    def transform(self, X: Any) -> Any:
        """Coordinates along the components, shape (n, n_components_); a table in blocks is one again."""
        count = getattr(self, "n_components_", None)
        return self._apply(X, lambda: partial(coordinates, mean=self.mean_, components=self.components_), width=count)

    def inverse_transform(self, X: Any) -> Array:
        """The points of the space of the columns with these coordinates, shape (n, d)."""
        check_is_fitted(self)
        return read_rows(X) @ self.components_ + self.mean_


@with_constructor
class PrivateWhitening(OneToOneFeatureMixin, PrivateTransformer):
    r"""Channels centred by a private mean and whitened by a private covariance, which all positions of a record share.

    $z_p \mapsto \hat\Sigma_f^{-1/2}(z_p - \hat m)$ for the C channels of every position, with no eigenvalue below f. So C + C(C+1)/2
    numbers are released for C P features, 81 + 3321 for the 3969 of `ScatteringFeatures` on 28 x 28 pixels, in one Gaussian release
    (`lethe.mechanisms.moments`). In fitting, records are projected on a ball around 0. What noise alone could have made is not
    whitened: f is the larger of `floor` of the mean eigenvalue and of $\sqrt{2C}$ standard deviations of the noise of an entry, which is
    about the largest eigenvalue of the noise.

    Args:
        channels: C, which divides the columns: all positions of the first channel come first. None: every column is one.
        feature_norm: a public bound on the norm of a record's whole row, on which longer rows are projected; "auto": a private quantile of
            the norms, for a twentieth of the budget (in squared mu); None is refused.
        floor: > 0, as a fraction of the mean eigenvalue. Directions in which records hardly differ tell little, and whitened as far as
            the others they would take as much of every row's norm.
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `PrivateTransformer`.
    Attributes: those of `PrivateTransformer`; `mean_`, shape (C,), `covariance_`, shape (C, C), as released, `whitening_`, shape (C, C),
        the matrix that is applied, `feature_norm_`.
    """

    channels: int | None = field(default=None, kw_only=False)
    feature_norm: float | str | None = "auto"
    floor: float = 0.1

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Release a norm where none is given, then mean and second moments of the channels: of a table in blocks one pass."""
        radius, floor = declared_norm(self.feature_norm), require_positive("floor", self.floor)
        table, budget, generator = self._start(X, y)
        records, columns = table.shape
        channels = columns if self.channels is None else self.channels
        public = [f"{columns} columns, and their names: {channels} channels of {positions_of(columns, channels)}"]
        public += [] if radius is None else [f"feature_norm = {radius:g}"]
        self._pay(budget.as_gaussian, budget, records)
        noise: dict[str, Any] = {"neighbours": self.neighbours, "generator": generator}
        if radius is None:
            radius, cost = private_norm(norms_of(table), budget, generator=generator)
            budget = budget.with_spent(cost)
        target = budget.settle(gaussian_cost)
        moments = channel_moments(table, channels=channels, norm=radius, target=target, records=records, **noise)
        self.mean_, self.covariance_, self.feature_norm_ = moments.mean, moments.covariance, radius
        floor_value = noise_floor(moments.covariance, moments.noise_std, share=floor)
        self.whitening_ = whitening_of(moments.mean, moments.covariance, floor=floor_value).matrix
        self._state([*budget.spent, moments.statement], budget, records, why=[f"noisy moments of rows of norm {radius:.3g}"], public=public)
        return self

    def transform(self, X: Any) -> Any:
        """Records whitened, shape (n, C P), of their own floating-point type; a table in blocks is one again."""
        return self._apply(X, lambda: Whitening(mean=self.mean_, matrix=self.whitening_).apply)
