r"""Membership scores from losses and confidences, higher for likelier members.

Called by users on outputs of their models, before `membership_inference` or a bound; nothing in Lethe calls it.

A score is no statement about privacy: it becomes a bound only in a game, with independent runs or coin-flipped canaries.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lethe.audit.statistics.counts import require_array
from lethe.calculus.domains import FloatArray, require_positive, require_probability
from lethe.errors import InputError


def scaled_confidence(logits: ArrayLike, labels: ArrayLike) -> FloatArray:
    r"""$\log p_y - \log(1 - p_y) = z_y - \log\sum_{j \ne y} e^{z_j}$, without forming p.

    Args:
        logits: shape (n, classes), at least two classes.
        labels: y, whole numbers from 0, shape (n,).
    Reference: Carlini et al. 2022, arXiv:2112.03570, Section V.
    """
    scores, right = require_array("logits", logits, dimensions=2), np.asarray(labels)
    records, classes = scores.shape
    if classes < 2 or right.dtype.kind not in "iu" or right.shape != (records,) or right.min() < 0 or right.max() >= classes:
        raise _mismatch("labels", right.tolist(), f"{records} whole numbers from 0 to {classes - 1}, and logits of two or more classes")
    rows = np.arange(records)
    true_logits = scores[rows, right]
    scores[rows, right] = -np.inf
    return true_logits - special.logsumexp(scores, axis=1)


def lira_online(observed: ArrayLike, in_scores: ArrayLike, out_scores: ArrayLike, *, pooled_variance: bool = False) -> FloatArray:
    r"""The likelihood ratio $\log N(\phi; m_{in}, s_{in}^2) - \log N(\phi; m_{out}, s_{out}^2)$ of each record.

    Args:
        observed: $\phi$ under the audited model, shape (n,).
        in_scores: $\phi$ under shadow models trained with the record, shape (models, n).
        out_scores: under those trained without, shape (other models, n).
        pooled_variance: one $s_{in}^2$ and one $s_{out}^2$, the mean over records; steadier below some 64 models.
    Reference: Carlini et al. 2022, arXiv:2112.03570, Algorithm 1.
    """
    inside, in_deviation = _standardised(observed, "in_scores", in_scores, pooled=pooled_variance)
    outside, out_deviation = _standardised(observed, "out_scores", out_scores, pooled=pooled_variance)
    return 0.5 * (np.square(outside) - np.square(inside)) + np.log(out_deviation) - np.log(in_deviation)


def lira_offline(observed: ArrayLike, out_scores: ArrayLike, *, pooled_variance: bool = False) -> FloatArray:
    r"""$\log P[N(m_{out}, s_{out}^2) < \phi]$ of each record, from models trained without it only; shapes as in `lira_online`."""
    return special.log_ndtr(_standardised(observed, "out_scores", out_scores, pooled=pooled_variance)[0])


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
    Reference: Zarifzadeh, Liu, Shokri 2024, arXiv:2312.03262, Section 3.
    """
    factor, gamma = require_probability("offline_factor", offline_factor), require_positive("threshold", threshold)
    ratios = _relative("observed", observed, "reference", reference, factor)
    population_ratios = np.sort(_relative("population", population, "population_reference", population_reference, factor))
    return np.searchsorted(population_ratios, ratios / gamma, side="right") / population_ratios.size


def _standardised(observed: ArrayLike, name: str, scores: ArrayLike, *, pooled: bool) -> tuple[FloatArray, FloatArray]:
    """How many standard deviations above the mean of the models each record's score is, and the deviations."""
    targets, values = require_array("observed", observed, dimensions=1), require_array(name, scores, dimensions=2)
    if len(values) < 2 or values.shape[1] != targets.size:
        raise _mismatch(name, values.shape, f"at least two models, and a column for each of the {targets.size} records")
    variance = values.var(axis=0)
    if pooled:
        variance = np.full_like(variance, variance.mean())
    if variance.min() == 0.0:
        same = f"{name}: record {int(np.argmin(variance))} has the same score under every model."
        raise InputError(same, source=f"the argument {name}", remedy="train more models, or pool the variance")
    return (targets - values.mean(axis=0)) / np.sqrt(variance), np.sqrt(variance)


def _relative(name: str, values: ArrayLike, reference_name: str, references: ArrayLike, factor: float) -> FloatArray:
    observed, reference = (require_array(each, of, dimensions=1) for each, of in ((name, values), (reference_name, references)))
    for each, array in ((name, observed), (reference_name, reference)):
        if array.min() <= 0.0 or array.max() > 1.0:
            raise _mismatch(each, (float(array.min()), float(array.max())), "probabilities above 0 and at most 1")
    if observed.shape != reference.shape:
        raise _mismatch(reference_name, reference.shape, f"as many numbers as {name}, {observed.size}")
    return observed / (0.5 * ((1.0 + factor) * reference + (1.0 - factor)))


def _mismatch(name: str, got: object, needed: str) -> InputError:
    return InputError(f"{name}: got {got}; it needs {needed}.", source=f"the argument {name}")
