r"""Membership scores from losses and confidences. Higher means more likely a member.

A score is no statement about privacy: it becomes a bound only in a game, with independent runs or coin-flipped canaries.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lethe.audit.statistics.inputs import require_array
from lethe.calculus.domains import FloatArray, require_count, require_positive, require_probability
from lethe.errors import InputError


def scaled_confidence(logits: ArrayLike, labels: ArrayLike) -> FloatArray:
    r"""$\log p_y - \log(1 - p_y) = z_y - \log\sum_{j \ne y} e^{z_j}$, without forming p.

    Args:
        logits: shape (n, classes), at least two classes.
        labels: y, whole numbers from 0, shape (n,).
    Returns:
        Shape (n,).
    Raises:
        InputError: a shape or a label does not fit.
    Reference: Carlini et al. 2022, arXiv:2112.03570, Section V.
    """
    values = require_array("logits", logits, dimensions=2)
    records, classes = values.shape
    right = np.asarray(labels)
    if classes < 2 or right.dtype.kind not in "iu" or right.shape != (records,):
        raise _mismatch("labels", right.shape, f"{records} whole numbers, and logits of two or more classes")
    if right.min() < 0 or right.max() >= classes:
        raise _mismatch("labels", (int(right.min()), int(right.max())), f"whole numbers from 0 to {classes - 1}")
    rows = np.arange(records)
    others = values.copy()
    others[rows, right] = -np.inf
    return values[rows, right] - special.logsumexp(others, axis=1)


def lira_online(observed: ArrayLike, in_scores: ArrayLike, out_scores: ArrayLike, *, pooled_variance: bool = False) -> FloatArray:
    r"""The likelihood ratio $\log N(\phi; m_{in}, s_{in}^2) - \log N(\phi; m_{out}, s_{out}^2)$ of each record.

    Args:
        observed: $\phi$ under the audited model, shape (n,).
        in_scores: $\phi$ under shadow models trained with the record, shape (models, n).
        out_scores: under those trained without, shape (other models, n).
        pooled_variance: one $s_{in}^2$ and one $s_{out}^2$, the mean over records; steadier below some 64 models.
    Returns:
        Shape (n,).
    Raises:
        InputError: the shapes differ, or a variance is 0.
    Reference: Carlini et al. 2022, arXiv:2112.03570, Algorithm 1.
    """
    values = require_array("observed", observed, dimensions=1)
    inside = _normal_log_density(values, "in_scores", in_scores, pooled=pooled_variance)
    return inside - _normal_log_density(values, "out_scores", out_scores, pooled=pooled_variance)


def lira_offline(observed: ArrayLike, out_scores: ArrayLike, *, pooled_variance: bool = False) -> FloatArray:
    r"""$\log P[N(m_{out}, s_{out}^2) < \phi]$ of each record, from models trained without it only.

    Args:
        observed: $\phi$ under the audited model, shape (n,).
        out_scores: $\phi$ under shadow models trained without the record, shape (models, n).
        pooled_variance: one $s_{out}^2$, the mean over records.
    Returns:
        Shape (n,).
    Raises, Reference: as `lira_online`.
    """
    values = require_array("observed", observed, dimensions=1)
    mean, deviation = _moments(values, "out_scores", out_scores, pooled=pooled_variance)
    return special.log_ndtr((values - mean) / deviation)


def rmia(
    observed: ArrayLike,
    reference: ArrayLike,
    population: ArrayLike,
    population_reference: ArrayLike,
    *,
    offline_factor: float = 0.3,
    threshold: float = 1.0,
) -> FloatArray:
    r"""The share of a population z that record x beats: $\frac{p(x|\theta)/p(x)}{p(z|\theta)/p(z)} \ge \gamma$.

    $$p(x) = \tfrac12[(1 + a)\,p_{out}(x) + (1 - a)]$$

    Args:
        observed: $p(x|\theta)$, the audited model's probability of the right answer, in (0, 1], shape (n,).
        reference: $p_{out}(x)$, its mean over models trained without x, shape (n,).
        population: $p(z|\theta)$, shape (k,).
        population_reference: $p_{out}(z)$, shape (k,).
        offline_factor: $a \in [0, 1]$.
        threshold: $\gamma > 0$.
    Returns:
        Shape (n,), each in [0, 1].
    Raises:
        InputError: a value is outside its range, or the shapes differ.
    Reference: Zarifzadeh, Liu, Shokri 2024, arXiv:2312.03262, Section 3.
    """
    factor, gamma = require_probability("offline_factor", offline_factor), require_positive("threshold", threshold)
    ratios = _relative("observed", observed, "reference", reference, factor)
    others = np.sort(_relative("population", population, "population_reference", population_reference, factor))
    return np.searchsorted(others, ratios / gamma, side="right") / others.size


def _relative(name: str, values: object, reference_name: str, references: object, factor: float) -> FloatArray:
    observed, reference = _probabilities(name, values), _probabilities(reference_name, references)
    if observed.shape != reference.shape:
        raise _mismatch(reference_name, reference.shape, f"as many numbers as {name}, {observed.size}")
    return observed / (0.5 * ((1.0 + factor) * reference + (1.0 - factor)))


def _probabilities(name: str, values: object) -> FloatArray:
    array = require_array(name, values, dimensions=1)
    if array.min() <= 0.0 or array.max() > 1.0:
        raise _mismatch(name, (float(array.min()), float(array.max())), "probabilities above 0 and at most 1")
    return array


def _moments(observed: FloatArray, name: str, scores: object, *, pooled: bool) -> tuple[FloatArray, FloatArray]:
    values = require_array(name, scores, dimensions=2)
    require_count(f"the number of models in {name}", values.shape[0], low=2, high=10**9)
    if values.shape[1] != observed.size:
        raise _mismatch(name, values.shape, f"a column for each of the {observed.size} records")
    variance = values.var(axis=0)
    if pooled:
        variance = np.full_like(variance, variance.mean())
    if variance.min() == 0.0:
        raise InputError(
            f"{name}: record {int(np.argmin(variance))} has the same score under every model.",
            source=f"the argument {name}",
            remedy="train more models, or pool the variance",
        )
    return values.mean(axis=0), np.sqrt(variance)


def _normal_log_density(observed: FloatArray, name: str, scores: object, *, pooled: bool) -> FloatArray:
    mean, deviation = _moments(observed, name, scores, pooled=pooled)
    return -0.5 * np.square((observed - mean) / deviation) - np.log(deviation)


def _mismatch(name: str, got: object, needed: str) -> InputError:
    return InputError(f"{name}: got {got}; it needs {needed}.", source=f"the argument {name}")
