r"""Least squares from noisy sufficient statistics, with a ridge that adapts to the data (AdaSSP).

`NoisyMoments` of the estimators calls `adassp` for least squares: two matrix products and one Gaussian release, where a descent would take
many steps. X has rows of D features, y the targets; a and $\omega$ weigh the parts.

One Gaussian vector is released, with noise $N(0, \sigma^2)$ on every coordinate:

$$\Big(\mathrm{svec}(X^\top X),\ \frac{aR}{B}X^\top y,\ \omega\,\lambda_{\min}(X^\top X)\Big),\qquad
  s^2 = R^4\{2(1+a^2/2)^2\text{ or }1 + a^2\} + \omega^2R^4,$$

where rows have norm at most R, targets lie within $\pm B$, and svec lists the diagonal and $\sqrt2$ times what is above it, so that its
length is the Frobenius norm. One record that is replaced, or zeroed out, moves it by at most s, with $4a^2$ for $2(1+a^2/2)^2$ where
$a^2 > 2$. Releases apart would cost $2R^4 + 4a^2R^4$. Proof: docs/theory.md, section 16.

What follows uses the release only: the noise on $X^\top X$ is a Gaussian orthogonal matrix, of norm at most
$t = \sigma(\sqrt{2D} + \sqrt{2\log(2/\rho)})$ but for a probability $\rho$, and the ridge is what t exceeds the smallest eigenvalue by.

Reference: Wang 2018, arXiv:1803.02596, Algorithm 2; Dwork, Talwar, Thakurta, Zhang 2014 (Analyze Gauss) for the noise on $X^\top X$.
"""

import math
from typing import Any

import numpy as np
from scipy import linalg

from lethe.calculus.domains import require_nonnegative, require_positive
from lethe.calculus.guarantees import Guarantee
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_up, square_above
from lethe.certificates.findings import holds
from lethe.certificates.parts import Citation
from lethe.errors import InputError
from lethe.errors.names import in_other_words
from lethe.mechanisms.base import Array, PrivateWeights, gaussian_noise_std, gaussian_statement, require_swap
from lethe.mechanisms.tables import projected, projected_rows, targets_within
from lethe.partitions.table import Chunks, RecordSums
from lethe.run.losses.linear import row_norm
from lethe.run.run import Neighbours

CITATION = Citation(
    key="wang-2018",
    text="Wang 2018, Revisiting differentially private linear regression, arXiv:1803.02596, Algorithm 2 (released as one vector).",
)
_TARGETS, _EIGENVALUE = 1.0, 0.5  # a, which gives X^T y the noise sigma B/R; omega
# Chance that noise exceeds what the ridge allows for: it costs accuracy, never privacy.
_FAILURE = 0.05


def moments_sensitivity(
    *, norm: float, neighbours: Neighbours = "replace_one", target_weight: float = _TARGETS, eigenvalue_weight: float = _EIGENVALUE
) -> float:
    r"""$s$ of the module's first lines, rounded up, in squared feature units, of rows whose norms R bounds, the intercept included."""
    radius, weight = require_positive("norm", norm), require_positive("target_weight", target_weight)
    extra = require_nonnegative("eigenvalue_weight", eigenvalue_weight, allow_infinity=False)
    square = weight * weight
    replaced = 2.0 * (1.0 + 0.5 * square) ** 2 if square <= 2.0 else 4.0 * square
    moved = replaced if require_swap(neighbours) == 2.0 else 1.0 + square
    return round_up(float(square_above(radius)) * math.sqrt(moved + extra * extra), 4e-15)


@in_other_words
def adassp(
    features: Any,
    targets: Any,
    *,
    feature_norm: float,
    target_bound: float,
    target: Guarantee,
    intercept: bool = False,
    neighbours: Neighbours = "replace_one",
    least_ridge: float = 0.0,
    generator: np.random.Generator | None = None,
) -> PrivateWeights:
    r"""Fit $y \approx \langle u, w\rangle$ and release w.

    Args:
        features: shape (n, d); rows longer than `feature_norm` are projected. Or `RecordSums`, of records in blocks.
        targets: shape (n,), truncated at plus and minus `target_bound`; None where features are `RecordSums`.
        feature_norm: R > 0, public.
        target_bound: B > 0, public, in target units.
        target, neighbours, generator: as `output_perturbation`.
        intercept: whether to append a constant feature.
        least_ridge: $\ge 0$, on the sum of half the squares; it is used after the release, so it costs nothing.
    """
    random, min_ridge = noise_generator(generator), require_nonnegative("least_ridge", least_ridge, allow_infinity=False)
    norm, bound = row_norm(feature_norm, intercept=intercept), require_positive("target_bound", target_bound)
    sensitivity = moments_sensitivity(norm=norm, neighbours=neighbours)
    noise_std, scale = gaussian_noise_std(sensitivity, target), _TARGETS * norm / bound
    if isinstance(features, RecordSums):
        if targets is not None or intercept:
            raise InputError(
                "targets, intercept: records in blocks come with both.", source="the arguments", remedy="leave them None and False"
            )
        features.require_norm(norm)
        square, cross = features.sum(_sums, features.columns, bound)
    else:
        features = projected_rows(features, feature_norm=feature_norm, intercept=intercept)
        square, cross = _sums([(features, targets_within(targets, count=len(features), bound=bound))], features.shape[1], bound)
    exact = _released_vector(square, cross, scale)
    noisy = exact + noise_std * random.standard_normal(exact.shape)
    weights = _solve(noisy, len(cross), noise_std=noise_std, scale=scale, least_ridge=min_ridge)
    statement = gaussian_statement(
        "least squares from noisy moments",
        "adassp",
        sensitivity=sensitivity,
        noise_std=noise_std,
        neighbours=neighbours,
        records=len(features),
        generator=generator,
        findings=(
            projected(norm),
            holds("bounded targets", f"truncated at plus and minus {bound:g} by the code", evidence="enforced"),
        ),
        citations=(CITATION,),
        norm=norm,
        target_weight=_TARGETS,
        eigenvalue_weight=_EIGENVALUE,
    )
    return PrivateWeights(weights=weights[:, None], statement=statement, noise_std=noise_std)


def _sums(chunks: Chunks, columns: int, target_bound: float) -> tuple[Array, Array]:
    r"""$X^\top X$ and $X^\top y$ of records in chunks."""
    square, cross = np.zeros((columns, columns)), np.zeros(columns)
    for rows, targets in chunks:
        square += rows.T @ rows
        cross += rows.T @ np.clip(targets, -target_bound, target_bound)
    return square, cross


def _released_vector(square: Array, cross: Array, scale: float) -> Array:
    """The vector of the head, before noise."""
    smallest_eigenvalue = max(float(linalg.eigvalsh(square, subset_by_index=[0, 0])[0]), 0.0)
    upper = np.triu_indices(len(square), 1)
    return np.concatenate([np.diag(square), math.sqrt(2.0) * square[upper], scale * cross, [_EIGENVALUE * smallest_eigenvalue]])


def noise_norm(noise_std: float, columns: int) -> float:
    r"""$t$: what the operator norm of the noise on $X^\top X$ exceeds with probability 5 % at most (docs/theory.md, section 16)."""
    return noise_std * (math.sqrt(2.0 * columns) + math.sqrt(2.0 * math.log(2.0 / _FAILURE)))


def _solve(noisy: Array, columns: int, *, noise_std: float, scale: float, least_ridge: float) -> Array:
    """Ridge regression from the release alone."""
    upper = np.triu_indices(columns, 1)
    square = np.diag(noisy[:columns])
    square[upper] = noisy[columns : columns + len(upper[0])] / math.sqrt(2.0)
    square = np.triu(square) + np.triu(square, 1).T
    cross = noisy[-columns - 1 : -1] / scale
    eigenvalues, vectors = linalg.eigh(square)
    smallest_eigenvalue = noisy[-1] / _EIGENVALUE - noise_std / _EIGENVALUE * math.sqrt(2.0 * math.log(1.0 / _FAILURE))
    ridge = max(least_ridge, noise_norm(noise_std, columns) - max(smallest_eigenvalue, 0.0))
    # Where the noise was larger than allowed for, an eigenvalue may still be negative; none below the noise says anything.
    return vectors @ ((vectors.T @ cross) / np.maximum(eigenvalues + ridge, noise_std))
