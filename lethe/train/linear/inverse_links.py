r"""Probabilities of the classes from scores, for losses whose slopes are bounded: the inverse link of each loss.

Where a record is of class y with chance $\pi_y$, scores s that no step moves on average satisfy $\sum_y\pi_y\,l_y'(s) = 0$. Slopes of these
losses add up to 0, and only the entry of the own class is negative: the matrix of rows $l_y'$ generates a Markov chain on the classes, and
$\pi$ is its stationary law, the only one. Two classes, q the sigmoid of the score, slopes cut at c:
$\pi_1/\pi_0 = \min(q, c)/\min(1 - q, c)$. Slope cut of many, $\sigma$ the softmax: $\pi_k \propto \sigma_k\max(1, (1 - \sigma_k)/c)$.
Proofs: docs/theory.md.

With $c < \frac12$ two classes have $\pi = \frac12$ for all $c \le q \le 1 - c$: there, and half as far beyond, log-odds are taken on a
straight line through 0, which keeps their order; on generated data it was nearer to the truth too.

A ridge $\kappa$ draws an intercept b towards 0. Of a minimiser the mean of $l'$ is then $-\kappa b$, in units in which its feature is 1,
and the chances are those under a shift d of scores that would leave that slope: $\mathbb E[(1 - \pi)l'(s, 0) + \pi l'(s, 1)] = -\kappa b$
with $\pi = \pi(s + d)$. The law of s is a guess: normal about b.
"""

import math

import numpy as np
from scipy import optimize, special

from lethe.calculus.domains import FloatArray
from lethe.errors import LetheError
from lethe.run.losses.linear import LinearLoss
from lethe.run.losses.logistic import Logistic, TruncatedLogistic
from lethe.run.losses.softmax import Softmax, TruncatedSoftmax

_STRAIGHT = 1.5  # times the scores between which the chances of two classes are equal
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
_SHARES = _WEIGHTS / _WEIGHTS.sum()
_MOST = 2.0  # that scores are shifted by
_LEAST = 1e-100  # rate of the chain: of a class that is as good as impossible
_FARTHEST = 200.0  # of a score from the largest
_AT_ONCE = 1 << 20  # numbers


def log_odds(scores: FloatArray, cut: FloatArray | float) -> FloatArray:
    """Of the second of two classes, from scores s and bounds c > 0 on the slope in the score, of one shape."""
    log_cut = np.log(np.minimum(cut, 1.0))
    edge = np.maximum(_STRAIGHT * (np.log1p(-np.minimum(cut, 0.5)) - np.minimum(log_cut, math.log(0.5))), 0.0)
    size = np.maximum(np.abs(scores), edge)
    exact = np.minimum(special.log_expit(size), log_cut) - np.minimum(special.log_expit(-size), log_cut)
    share = np.where(edge > 0.0, scores / np.where(size > 0.0, size, 1.0), np.sign(scores))
    return np.asarray(exact * share)


def ridge_shift(middle: float, spread: float, ridge: float, cut: float) -> float:
    r"""d, of two classes: what is to be added to scores about N(middle, spread^2) that a ridge has drawn to 0, at most 2 in size.

    Args:
        middle: b.
        spread: $\ge 0$.
        ridge: $\kappa \ge 0$, on the intercept of a constant feature 1.
        cut: c.
    """
    scores, away = middle + spread * _NODES, math.copysign(_MOST, middle)
    up, down = np.minimum(special.expit(scores), cut), np.minimum(special.expit(-scores), cut)

    def outward(shift: float) -> float:
        chances = special.expit(log_odds(scores + shift, cut))
        return float(_SHARES @ ((1.0 - chances) * up - chances * down) + ridge * middle) * away

    if outward(0.0) <= 0.0:  # no ridge; or log-odds on the line, which outweigh it
        return 0.0
    return away if outward(away) >= 0.0 else float(optimize.brentq(outward, 0.0, away))


def class_log_odds(loss: LinearLoss, scores: FloatArray, bounds: FloatArray | None = None) -> FloatArray:
    """Of the second of two classes, shape (n,), from the score that tells them apart, shape (n,).

    Args:
        loss: of two classes; of two scores it is given their difference.
        scores: shape (n,).
        bounds: of each record's envelope, $C/\\|u\\|$, in loss per score, shape (n,); None: the loss itself.
    """
    match loss:
        case TruncatedLogistic(cut=cut) | TruncatedSoftmax(cut=cut):
            return log_odds(scores, cut)
        case Logistic():
            return log_odds(scores, 1.0 if bounds is None else bounds)
        case Softmax():  # the slope in two scores is root two times as long
            return log_odds(scores, 1.0 if bounds is None else bounds / math.sqrt(2.0))
        case _:
            raise _no_probabilities(loss)


def class_log_probabilities(loss: LinearLoss, scores: FloatArray, bounds: FloatArray | None = None) -> FloatArray:
    """Logarithms of the chances of K classes, shape (n, K), from a score for each; `bounds` as of `class_log_odds`."""
    match loss:
        case TruncatedSoftmax(cut=cut):
            logs = special.log_softmax(scores, axis=1)
            return np.asarray(special.log_softmax(logs + np.log(np.maximum(-np.expm1(logs) / cut, 1.0)), axis=1))
        case Softmax():
            if bounds is None:
                return np.asarray(special.log_softmax(scores, axis=1))
            size = max(_AT_ONCE // scores.shape[1] ** 2, 1)
            parts = [slice(first, first + size) for first in range(0, len(scores), size)]
            return np.concatenate([_stationary(loss, scores[part], bounds[part]) for part in parts])
        case _:
            raise _no_probabilities(loss)


def _stationary(loss: Softmax, scores: FloatArray, bounds: FloatArray) -> FloatArray:
    """The logarithm of the stationary law of the chain of slopes, by elimination of states without a subtraction (Grassmann et al.)."""
    count, classes = scores.shape
    scores = np.maximum(scores, scores.max(axis=1, keepdims=True) - _FARTHEST)
    owners = (np.full(count, own, dtype=np.float64) for own in range(classes))
    rates = np.stack([loss.envelope_slopes(scores, own, bounds) for own in owners], axis=1)
    rates = np.maximum(rates, _LEAST)  # the diagonal is not read
    for last in range(classes - 1, 0, -1):
        rates[:, :last, last] /= rates[:, last, :last].sum(axis=1, keepdims=True)
        rates[:, :last, :last] += rates[:, :last, last, None] * rates[:, last, None, :last]
    law = np.ones((count, classes))
    for one in range(1, classes):
        law[:, one] = np.einsum("nk,nk->n", law[:, :one], rates[:, :one, one])
        law[:, : one + 1] /= law[:, : one + 1].max(axis=1, keepdims=True)
    return np.asarray(np.log(np.maximum(law, _LEAST)) - np.log(law.sum(axis=1, keepdims=True)))


def _no_probabilities(loss: LinearLoss) -> LetheError:
    return LetheError(f"no probabilities are known of the {loss.name} loss.", remedy="take decision_function")
