"""Perturbed minimisers of one weight, exactly: the density of w follows from b(w) = -(sum of slopes + ridge w), b ~ N(0, sigma^2)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtr

Values = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Record:
    """One record of one weight: its feature, its target and the kind of its loss, written here anew."""

    feature: float
    target: float
    kind: str

    def gradient(self, weights: Values) -> Values:
        scores = self.feature * weights
        sign = 2.0 * self.target - 1.0
        if self.kind == "logistic":
            return self.feature * (expit(scores) - self.target)
        if self.kind == "cut":  # at half a slope
            return -sign * self.feature * np.minimum(expit(-sign * scores), 0.5)
        if self.kind == "hinge":  # width 1/2: a slope of 1 more for each unit of margin that is missed
            return -sign * self.feature * np.minimum(np.maximum(1.5 - sign * scores, 0.0), 1.0)
        if self.kind in ("counts", "costs"):  # of power 1 and 2, targets up to 3, at slopes of 1
            raised = np.exp(np.minimum(scores, 9.0)) - self.target
            if self.kind == "costs":
                raised = 1.0 - self.target * np.exp(np.minimum(-scores, 30.0))
            return self.feature * np.minimum(np.maximum(raised, -1.0), 1.0)
        assert self.kind == "huber"  # residual bound 1
        return self.feature * np.minimum(np.maximum(scores - self.target, -1.0), 1.0)


def cell_masses(records: Sequence[Record], *, ridge: float, noise_std: float, edges: Values) -> Values:
    """The probability that the minimiser lies in each cell: b falls as w grows, so the cells of w are cells of b."""
    b = -sum((record.gradient(edges) for record in records), start=ridge * edges)
    at = b / noise_std
    # The smaller of the two tails, which keeps its digits.
    return np.where(at[:-1] > 0, ndtr(-at[1:]) - ndtr(-at[:-1]), ndtr(at[:-1]) - ndtr(at[1:]))


def grid(ridge: float, noise_std: float) -> Values:
    """Cells as fine as the losses bend, and as far as the noise reaches."""
    reach = (12.0 * noise_std + 4.0) / ridge
    spread = np.linspace(-reach, reach, 4_001)
    return np.unique(np.concatenate([spread, np.linspace(-min(reach, 30.0), min(reach, 30.0), 16_001)]))


def divergence(first: Values, second: Values, epsilon: float, *, shift: float = 0.0) -> float:
    """sup_S P(S) - e^epsilon Q(S) over sets of cells, so never above the true one; beside the cells, a Gaussian moved by `shift`."""
    if shift == 0.0:
        return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())
    alive = (first > 0.0) & (second > 0.0)
    levels = epsilon + np.log(second[alive] / first[alive])
    inside = ndtr(shift / 2.0 - levels / shift) - np.exp(levels) * ndtr(-shift / 2.0 - levels / shift)
    return float(first[alive] @ inside + first[~alive].sum())


def exact_delta(
    first: Sequence[Record], second: Sequence[Record], epsilon: float, *, ridge: float, noise_std: float, shift: float = 0.0
) -> float:
    """Both directions, the larger one."""
    edges = grid(ridge, noise_std)
    p, q = (cell_masses(records, ridge=ridge, noise_std=noise_std, edges=edges) for records in (first, second))
    return max(divergence(p, q, epsilon, shift=shift), divergence(q, p, epsilon, shift=shift))
