"""Mechanisms of known epsilon to audit, many audits of one, and what counts as too many bounds above the truth."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from lethe.audit.page import Claim
from lethe.audit.statistics.counts import Tally
from lethe.audit.statistics.result import AuditResult
from lethe.calculus.conversions import profile_epsilon

Generator = np.random.Generator
Worlds = tuple[np.ndarray, np.ndarray]


RESULT: dict[str, Any] = {
    "epsilon": 3.20159,
    "delta": 1e-5,
    "level": 0.05,
    "estimator": "clopper_pearson",
    "unit": "run",
    "selection": "ranks",
    "rule": "OUT ranks <10> declared in advance",
    "neighbours": "replace_one",
    "threat": "final_model",
    "counts": Tally(out_trials=1000, false_positives=9, in_trials=1000, false_negatives=400),
}
CONDITIONAL: dict[str, Any] = {"estimator": "gaussian", "family": "Gaussian", "epsilon": 9.0}
POINT: dict[str, Any] = {"estimator": "plug_in", "level": None, "selection": "same_data", "epsilon": math.inf}


def result(**changes: Any) -> AuditResult:
    """A certified result, or what the changes make of it."""
    return AuditResult(**{**RESULT, **changes})


def claim(epsilon: float = 1.0, **changes: Any) -> Claim:
    """Of the same delta and neighbours."""
    return Claim(**{"epsilon": epsilon, "delta": 1e-5, "neighbours": "replace_one", "release": "last", "source": "a theorem", **changes})


@dataclass(frozen=True)
class Shifted:
    """A training: a Gaussian mechanism, which other processes can be handed."""

    shift: float = 1.0

    def __call__(self, inside: bool, seed: int) -> float:
        return float(self.shift * inside + np.random.default_rng(seed).normal())


class Locked(Shifted):
    """Cannot be handed to another process."""

    def __reduce__(self) -> str:
        raise TypeError("locked")


def failing(inside: Any, seed: int) -> float:
    """A training that fails."""
    raise ZeroDivisionError(f"of {seed}")


def laplace(generator: Generator, runs: int) -> Worlds:
    """Laplace noise of scale 1 on 0 or 1: epsilon is 1 at delta 0."""
    return generator.laplace(size=runs), generator.laplace(loc=1.0, size=runs)


def gaussian(generator: Generator, runs: int, mu: float) -> Worlds:
    """N(0, 1) or N(mu, 1)."""
    return generator.normal(size=runs), generator.normal(loc=mu, size=runs)


def answers(models: int, candidates: int, epsilon: float, generator: Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Randomised response about each coin: exactly epsilon-DP in each of them, and each answer is the best attack's."""
    coins = [generator.random(candidates) < 0.5 for _ in range(models)]
    true = 1.0 / (1.0 + math.exp(-epsilon))
    words = [np.where(generator.random(candidates) < true, flags, ~flags) for flags in coins]
    return [np.where(word, true, 1.0 - true) for word in words], coins


def repeated(audit: Callable[[Generator], float], *, times: int, seed: int) -> np.ndarray:
    """The epsilons of many audits, each with fresh runs."""
    generator = np.random.default_rng(seed)
    return np.array([audit(generator) for _ in range(times)])


def assert_valid(epsilons: np.ndarray, truth: float, level: float = 0.05) -> None:
    """Bounds above the truth are no more than a rate `level` explains, at one chance in 10^6."""
    above = int(np.count_nonzero(epsilons > truth))
    assert stats.binom.sf(above - 1, epsilons.size, level) > 1e-6, f"{above} of {epsilons.size} above {truth}, at level {level}"


def assert_invalid(epsilons: np.ndarray, truth: float, level: float = 0.05) -> None:
    """Bounds above the truth are more than a rate `level` explains, at one chance in 10^6."""
    above = int(np.count_nonzero(epsilons > truth))
    assert stats.binom.sf(above - 1, epsilons.size, level) < 1e-6, f"{above} of {epsilons.size} above {truth}, at level {level}"


def assert_powerful(epsilons: np.ndarray, expected: float, *, of: int) -> None:
    """The mean is not below `expected`, itself the mean of `of` audits, by more than three standard errors of the difference.

    5e-3 is the rounding of a table with two decimals.
    """
    error = float(epsilons.std(ddof=1)) * (1.0 / epsilons.size + 1.0 / of) ** 0.5
    assert epsilons.mean() >= expected - 3.0 * error - 5e-3, f"mean {epsilons.mean():.4f}; expected {expected} +- {error:.4f}"


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(600)


def linear_last_iterate_epsilon(*, steps: int, sampling_probability: float, noise_multiplier: float, delta: float) -> float:
    r"""Epsilon of the last iterate of Poisson-sampled DP-SGD on a linear loss, adding or removing one record; good to about 1e-6.

    With gradients that do not depend on the iterate its displacement is $\mathrm{Bin}(T, q) + N(0, z^2T)$ with the record and
    $N(0, z^2T)$ without. Their likelihood ratio grows with the displacement, so each direction has one threshold.

    Reference: Steinke et al. 2024, arXiv:2410.06186.
    """
    spread, draws = noise_multiplier * math.sqrt(steps), np.arange(steps + 1)
    weights = stats.binom.pmf(draws, steps, sampling_probability)
    draws, weights = draws[weights > 1e-30], weights[weights > 1e-30]

    def log_ratio(place: float) -> float:
        return float(special.logsumexp((draws * place - 0.5 * np.square(draws)) / spread**2, b=weights))

    def threshold(level: float) -> float:
        low, high = -1e3 * spread, 1e3 * spread
        if not log_ratio(low) < level < log_ratio(high):
            return low if level <= log_ratio(low) else high
        return float(optimize.brentq(lambda place: log_ratio(place) - level, low, high, xtol=1e-12 * spread))

    def delta_of(epsilon: float) -> float:
        if epsilon > 700.0:
            return 0.0
        above, below = threshold(epsilon), threshold(-epsilon)
        forward = float(weights @ special.ndtr((draws - above) / spread)) - math.exp(epsilon) * float(special.ndtr(-above / spread))
        backward = float(special.ndtr(below / spread)) - math.exp(epsilon) * float(weights @ special.ndtr((below - draws) / spread))
        return max(forward, backward, 0.0)

    return profile_epsilon(delta_of, delta)


def projected_walk_epsilon(*, steps: int, diameter: float, shift: float, noise_std: float, start: float, delta: float) -> float:
    r"""Epsilon of $x \leftarrow \min\{\max\{x + s\,[\mathrm{IN}] + \tau Z, 0\}, D\}$ after T steps, the last iterate released.

    Noisy gradient descent on [0, D] with a linear loss, full batches, and a record that moves each step by s: a legal instance of every
    theorem about bounded domains, so none of their bounds may be smaller. The law has atoms at both ends and a smooth density between,
    followed by Nyström's method at Gauss-Legendre nodes, which see a noise of D/50 or more.
    """

    def law(move: float) -> np.ndarray:
        places, weights = 0.5 * diameter * (_NODES + 1.0), 0.5 * diameter * _WEIGHTS
        sources = np.concatenate([[0.0], places, [diameter]]) + move
        inner = weights[:, None] * stats.norm.pdf(places[:, None], sources, noise_std)
        moves = np.vstack([special.ndtr(-sources / noise_std), inner, special.ndtr((sources - diameter) / noise_std)])
        first = [[special.ndtr(-(start + move) / noise_std)], weights * stats.norm.pdf(places, start + move, noise_std)]
        masses = np.concatenate([*first, [special.ndtr((start + move - diameter) / noise_std)]])
        for _ in range(steps - 1):
            masses = moves @ masses
        return masses

    inside, without = law(shift), law(0.0)

    def delta_of(epsilon: float) -> float:
        factor = math.exp(min(epsilon, 700.0))
        return max(float(np.sum(np.maximum(one - factor * other, 0.0))) for one, other in ((inside, without), (without, inside)))

    return profile_epsilon(delta_of, delta)
