r"""Probabilities of the classes from scores, for losses whose slopes are bounded: the inverse link of each loss.

Private classifiers (`estimators.models`) call it: a cut slope (a derivative truncated at c) biases the scores, and this undoes that. C is
the clip norm, u a record's features.

Where a record is of class y with chance $\pi_y$, scores s that no step moves on average satisfy $\sum_y\pi_y\,l_y'(s) = 0$: the rows $l_y'$
generate a Markov chain on the classes, and $\pi$ is its stationary law. Of two classes with slopes of at most $c < \frac12$ it is $\frac12$
where the sigmoid is within $[c, 1 - c]$: to keep the order log-odds are taken on a straight line there, and half as far beyond.

Lemma. (i) For scores s there is exactly one law $\pi$ with $\sum_y\pi_yl_y'(s) = 0$, and exactly for it s minimises $\sum_y\pi_yl_y$. (ii)
Slopes truncated at c, $\sigma = \mathrm{softmax}(s)$: $\pi_k \propto \sigma_k\max(1, (1 - \sigma_k)/c)$. (iii) Two classes, q the sigmoid,
slopes cut at c (of one score the envelope too): $\pi_1/\pi_0 = \min(q, c)/\min(1 - q, c)$.

Proof. The gradient of cross-entropy is $p - e_y$, of an envelope that at another point, truncated $\min(r, c)(q - e_y)$: entries add up to
0, and all but the y-th are positive, so the chain is irreducible and has one stationary law; the losses are convex, so s is a minimiser.
(ii) With $w_y = \min(1, c/(1 - \sigma_y))$ the rate from y to k is $w_y\sigma_k$, and $\pi_kw_k(1 - \sigma_k) = \sigma_k\sum_{y\ne
k}\pi_yw_y$ holds if $\pi_yw_y \propto \sigma_y$. (iii) The slope is $\min(q, c)$ for class 0, $-\min(1 - q, c)$ for class 1.
"""

import math

import numpy as np
from scipy import optimize, special, stats

from lethe.calculus.domains import FloatArray
from lethe.errors import LetheError
from lethe.run.losses.linear import LinearLoss
from lethe.run.losses.logistic import Logistic, TruncatedLogistic
from lethe.run.losses.softmax import Softmax, TruncatedSoftmax

_STRAIGHT = 1.5  # times the scores between which the chances of two classes are equal
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
_POINTS, _RESCALINGS = 4096, 200  # of the law of many classes' scores
_MOST = 2.0  # that scores are shifted by
_LEAST, _FARTHEST = 1e-100, 200.0  # rate of the chain; of a score from the largest


def log_odds(scores: FloatArray, cut: FloatArray | float) -> FloatArray:
    """Log-odds of the second of two classes, from scores s and bounds c > 0 on the slope in the score, of one shape."""
    log_cut = np.log(np.minimum(cut, 1.0))
    edge = np.maximum(_STRAIGHT * (np.log1p(-np.minimum(cut, 0.5)) - np.minimum(log_cut, math.log(0.5))), 0.0)
    size = np.maximum(np.abs(scores), edge)
    exact = np.minimum(special.log_expit(size), log_cut) - np.minimum(special.log_expit(-size), log_cut)
    return np.asarray(exact * np.where(edge > 0.0, scores / np.where(size > 0.0, size, 1.0), np.sign(scores)))


def ridge_shift(middle: float, spread: float, ridge: float, cut: float) -> float:
    r"""What two classes' scores, about N(middle, spread^2), lack since a ridge $\kappa$ draws their intercept b, of a feature 1, to 0.

    The minimiser's mean slope is $-\kappa b$; of a shift d it is $\mathbb E[(1 - \pi)l'(s, 0) + \pi l'(s, 1)]$ with $\pi = \pi(s + d)$.
    """
    scores, away = middle + spread * _NODES, math.copysign(_MOST, middle)
    up, down = np.minimum(special.expit(scores), cut), np.minimum(special.expit(-scores), cut)

    def outward(shift: float) -> float:
        chances = special.expit(log_odds(scores + shift, cut))
        return float(_WEIGHTS @ ((1.0 - chances) * up - chances * down) / _WEIGHTS.sum() + ridge * middle) * away

    if outward(0.0) <= 0.0:  # no ridge; or log-odds on the line, which outweigh it
        return 0.0
    return away if outward(away) >= 0.0 else float(optimize.brentq(outward, 0.0, away))


def ridge_shifts(loss: Softmax | TruncatedSoftmax, middle: FloatArray, covariance: FloatArray, ridge: float) -> FloatArray:
    r"""What many classes' scores, about N(middle, covariance), lack since a ridge $\kappa$ draws their intercepts to 0: shape (K,).

    With $\sigma$ the softmax of the scores s, c the cut, $w_k = \min(1, c/(1 - \sigma_k))$ and $\pi = \pi(s + d)$ the mean slope
    in $s_k$ is $\mathbb E[\sigma_k\sum_j\pi_jw_j - \pi_kw_k]$, and $-\kappa b_k$ at the minimiser: d by rescaling each class in turn.
    """
    values, vectors = np.linalg.eigh(covariance)
    count = max(_POINTS >> max(len(middle) // 50, 1).bit_length(), 64)
    nodes = special.ndtri(stats.qmc.Sobol(len(middle), scramble=False).random(count) + 0.5 / count)
    scores = middle + nodes * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    shares = special.softmax(scores, axis=1)
    cut = loss.cut if isinstance(loss, TruncatedSoftmax) else 1.0
    weights = np.minimum(1.0, cut / np.maximum(1.0 - shares, 1e-300))
    pull, shifts = ridge * (middle - middle.mean()), np.zeros(len(middle))  # slopes add up to 0
    for _ in range(_RESCALINGS):
        rates = np.exp(class_log_probabilities(loss, scores + shifts, None)) * weights
        target_means = (shares * rates.sum(axis=1, keepdims=True)).mean(axis=0) + pull
        step = np.log(np.maximum(target_means, _LEAST) / rates.mean(axis=0))
        shifts, last = np.clip(shifts + step - step[middle.argmax()], -_MOST, _MOST), shifts
        if np.abs(shifts - last).max() < 1e-7:
            break
    return shifts


def class_log_probabilities(loss: LinearLoss, scores: FloatArray, bounds: FloatArray | None) -> FloatArray:
    """Of classes by their scores, shape (n, K), under envelopes of $C/\\|u\\|$ or none (n,); of two by a difference (n,): log-odds (n,)."""
    match loss:
        case TruncatedLogistic() | TruncatedSoftmax() if scores.ndim == 1:
            return log_odds(scores, loss.cut)
        case Logistic() | Softmax() if scores.ndim == 1:  # the slope in two scores is root two times as long
            return log_odds(scores, 1.0 if bounds is None else bounds / math.sqrt(loss.slope_entries))
        case TruncatedSoftmax(cut=cut):
            logs = special.log_softmax(scores, axis=1)
            return np.asarray(special.log_softmax(logs + np.log(np.maximum(-np.expm1(logs) / cut, 1.0)), axis=1))
        case Softmax():
            if bounds is None:
                return np.asarray(special.log_softmax(scores, axis=1))
            size = max(2**20 // scores.shape[1] ** 2, 1)
            parts = [slice(first, first + size) for first in range(0, len(scores), size)]
            return np.concatenate([_stationary(loss, scores[part], bounds[part]) for part in parts])
        case _:
            raise LetheError(f"no probabilities are known of the {loss.name} loss.", remedy="take decision_function")


def _stationary(loss: Softmax, scores: FloatArray, bounds: FloatArray) -> FloatArray:
    """The logarithm of the stationary law of the chain of slopes, by elimination of states without a subtraction (Grassmann et al.)."""
    count, classes = scores.shape
    scores = np.maximum(scores, scores.max(axis=1, keepdims=True) - _FARTHEST)
    owners = (np.full(count, label, dtype=np.float64) for label in range(classes))
    rates = np.maximum(
        np.stack([loss.envelope_slopes(scores, owner, bounds) for owner in owners], axis=1), _LEAST
    )  # the diagonal is not read
    for last in range(classes - 1, 0, -1):
        rates[:, :last, last] /= rates[:, last, :last].sum(axis=1, keepdims=True)
        rates[:, :last, :last] += rates[:, :last, last, None] * rates[:, last, None, :last]
    law = np.ones((count, classes))
    for state in range(1, classes):
        law[:, state] = np.einsum("nk,nk->n", law[:, :state], rates[:, :state, state])
        law[:, : state + 1] /= law[:, : state + 1].max(axis=1, keepdims=True)
    return np.asarray(np.log(np.maximum(law, _LEAST)) - np.log(law.sum(axis=1, keepdims=True)))
