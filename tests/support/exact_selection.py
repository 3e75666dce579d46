"""The law of the best of a random number of tries, summed over that number, and divergences between finite laws."""

import functools
import itertools
import math

import numpy as np
from scipy.special import logsumexp


@functools.cache
def law_of_tries(repetitions):
    """(k, P(K = k)), k >= 1, as far as it matters, and P(K = 0)."""
    counts = np.arange(1, 3000)
    weights = np.array([repetitions.probability(int(count)) for count in counts])
    return counts[weights > 1e-30].astype(float), weights[weights > 1e-30], repetitions.probability(0)


def best_of(base, repetitions):
    """Exact law of the best output (the last is the best), no output added at the end: sums over k, nothing in closed form.

    P(best of k is y) = t^k (1 - (b/t)^k) with b the probability of a worse output, and t of one that is no better.
    """
    counts, weights, none = law_of_tries(repetitions)
    below = np.concatenate([[0.0], np.cumsum(base)])
    law = []
    for worse, upto in itertools.pairwise(np.minimum(below, 1.0).tolist()):
        share = -np.expm1(counts * math.log(worse / upto)) if worse > 0.0 else 1.0
        law.append(float((weights * upto**counts * share).sum()))
    return np.array([*law, none])


def renyi(p, q, order):
    where = p > 0.0
    if (q[where] == 0.0).any():
        return math.inf
    return float(logsumexp(order * np.log(p[where]) + (1.0 - order) * np.log(q[where]))) / (order - 1.0)


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
