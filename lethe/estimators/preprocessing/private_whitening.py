"""Private centring and whitening over channels."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Self

from sklearn.base import OneToOneFeatureMixin
from sklearn.utils import Tags

from lethe.calculus.domains import require_positive
from lethe.estimators.features.whitening import Whitening, noise_floor, whitening_of
from lethe.estimators.inputs.norms import private_norm
from lethe.estimators.inputs.validation import declared_norm
from lethe.estimators.preprocessing.transformer import PrivateTransformer, gaussian_cost
from lethe.mechanisms.moments import channel_moments, positions_of


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
        """Release a norm where none is given, then mean and second moments of the channels.

        Args:
            X: records, shape (n, C P); or a table in blocks, of which the moments are one pass.
            y: not used; of a table in blocks it may be the name of a column that is no feature.
        Raises:
            InputError, ValueError: data or parameters that cannot be used; nothing is released then.
        """
        radius, floor = declared_norm(self.feature_norm), require_positive("floor", self.floor)
        start = self._start(X, y)
        (records, columns), budget = start.table.shape, start.budget
        channels = columns if self.channels is None else self.channels
        positions = positions_of(columns, channels)
        public = [f"{columns} columns, and their names: {channels} channels of {positions}"]
        self._pay(budget.as_gaussian, budget, records)
        if radius is None:
            radius, cost = private_norm(start.norms(), budget, neighbours=self.neighbours, generator=start.generator)
            budget = budget.with_spent(cost)
        else:
            public.append(f"feature_norm = {radius:g}")
        found = channel_moments(
            start.table,
            channels=channels,
            norm=radius,
            target=budget.settle(gaussian_cost),
            neighbours=self.neighbours,
            records=records,
            generator=start.generator,
        )
        self.mean_, self.covariance_, self.feature_norm_ = found.mean, found.covariance, radius
        least = noise_floor(found.covariance, found.noise_std, share=floor)
        self.whitening_ = whitening_of(found.mean, found.covariance, least=least).matrix
        self._state([*budget.spent, found.statement], budget, records, why=[f"noisy moments of rows of norm {radius:.3g}"], public=public)
        return self

    def transform(self, X: Any) -> Any:
        """Records whitened, shape (n, C P), of their own floating-point type; a table in blocks is one again.

        Args:
            X: records, shape (n, C P).
        """
        return self._apply(X, lambda: Whitening(mean=self.mean_, matrix=self.whitening_).apply)
