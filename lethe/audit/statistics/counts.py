"""Counting errors of guesses in an audit (two worlds, or one run), exact bounds on the rates behind the counts, and checks of the input.

lower_bounds.py, one_run.py and rules.py count errors with these (`Tally`, `Guesses`) and bound the true rates by Clopper and Pearson's
exact intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike
from pydantic import Field, model_validator
from scipy import special

from lethe.calculus.crossing import crossing
from lethe.calculus.domains import FloatArray, as_number, outside, require_count
from lethe.documents.specification import Specification
from lethe.errors import InputError

MOST_TRIALS = 10_000_000
Booleans = npt.NDArray[np.bool_]
T = TypeVar("T")


def require_level(value: object, name: str = "level") -> float:
    r"""Return the probability of error $\alpha \in [10^{-12}, 1/2]$ as a float, or raise InputError."""
    needed = "a number from 1e-12 to 0.5, the probability with which the result may be wrong"
    number = as_number(name, value, needed)
    if not 1e-12 <= number <= 0.5:
        raise outside(name, value, needed)
    return number


def require_array(name: str, values: object, *, dimensions: int) -> FloatArray:
    """Return a non-empty array of finite floats with so many dimensions, or raise InputError."""
    needed = f"a non-empty {'list' if dimensions == 1 else f'{dimensions}-dimensional array'} of finite numbers"
    source = f"the argument {name}"
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: got {type(values).__name__} of uneven shape; it needs {needed}.", source=source) from error
    if array.dtype.kind not in "iuf" or array.ndim != dimensions or array.size == 0:
        raise InputError(f"{name}: got {array.dtype.name} of shape {array.shape}; it needs {needed}.", source=source)
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        first = tuple(int(coordinate) for coordinate in np.argwhere(~np.isfinite(array))[0])
        raise InputError(
            f"{name}{list(first)} = {array[first]}; it needs {needed}.", source=source, remedy="leave out no run: find out why it failed"
        )
    return array


def require_scores(name: str, values: object) -> FloatArray:
    """Return the scores of one world, at least two and not all equal, or raise InputError."""
    scores = require_array(name, values, dimensions=1)
    if scores.size < 2:
        raise outside(name, scores.tolist(), "the scores of at least two runs")
    if np.ptp(scores) == 0.0:
        raise InputError(
            f"{name}: all {scores.size} scores are {scores[0]:g}; runs of a private mechanism differ.",
            source=f"the argument {name}",
            remedy="check that every run draws its own noise, and that the score reads the released model",
        )
    return scores


def require_flags(name: str, values: object, size: int) -> Booleans:
    """Return `size` truth values, such as coins, as an array, or raise InputError."""
    array = np.asarray(values)
    if array.dtype != np.bool_ or array.shape != (size,):
        got = f"got {array.dtype.name} of shape {array.shape}"
        raise InputError(f"{name}: {got}; it needs {size} truth values, one a score.", source=f"the argument {name}")
    return array


def require_instance(name: str, value: object, kind: type[T], remedy: str | None = None) -> T:
    """Return `value` if it is of that class, or raise InputError."""
    if not isinstance(value, kind):
        needed = f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
        raise InputError(f"{name}: got {type(value).__name__}; it needs {needed}.", source=f"the argument {name}", remedy=remedy)
    return value


def warnings_of_repeats(*worlds: FloatArray) -> tuple[str, ...]:
    """A warning where many runs of a world have the very same score."""
    distinct = min(np.unique(world).size / world.size for world in worlds)
    return ("many scores are exactly equal: check that no two runs drew the same noise",) if distinct < 0.9 else ()


def lowered(value: float) -> float:
    """`value` less its rounding error, and 0 where nothing is left: what is printed as a lower bound is one."""
    return max(0.0, value - 1e-12 * (1.0 + value)) if value < math.inf else value


# The quantile is good to about 1e-12 (tested against 40 digits); the margin is on the safe side of that.
_MARGIN = 1e-10


def clopper_pearson_upper(successes: int, trials: int, level: float) -> float:
    r"""Upper end of a one-sided interval for a rate, exact at every number of trials; rounded up.

    $$U(k, n, \alpha) = B^{-1}_{1-\alpha}(k+1,\ n-k), \qquad U(n, n, \alpha) = 1$$

    with the quantile $B^{-1}_u(a, b)$ of a beta law: the largest rate at which k successes or fewer still have probability $\alpha$.

    $\alpha$ is the most the probability can be that the rate of n independent trials with one rate is above the result.

    Reference: Clopper & Pearson 1934, Biometrika 26, 404-413.
    """
    total = require_count("trials", trials, low=1, high=MOST_TRIALS)
    return float(_upper(require_count("successes", successes, low=0, high=total), total, require_level(level)))


def clopper_pearson_lower(successes: int, trials: int, level: float) -> float:
    r"""Lower end of a one-sided interval for a rate, $1 - U(n-k, n, \alpha)$; rounded down."""
    total = require_count("trials", trials, low=1, high=MOST_TRIALS)
    count = require_count("successes", successes, low=0, high=total)
    chance = require_level(level)
    # The quantile itself, and not 1 - U, which has no digits left for a small rate.
    return 0.0 if count == 0 else float(special.betaincinv(count, total - count + 1, chance)) * (1.0 - _MARGIN)


@lru_cache(maxsize=16)
def upper_table(trials: int, level: float) -> FloatArray:
    r"""$U(k, n, \alpha)$ for $k = 0..n$, shape (n + 1,), for whoever looks at many thresholds at once. Read only."""
    table = _upper(np.arange(trials + 1), trials, level)
    table.flags.writeable = False
    return table


def _upper(successes: ArrayLike, trials: int, level: float) -> FloatArray:
    count = np.asarray(successes, dtype=np.float64)
    inside = special.betainccinv(count + 1.0, np.maximum(trials - count, 0.5), level)
    return np.where(count == trials, 1.0, np.minimum(inside * (1.0 + _MARGIN), 1.0))


def largest_refuted(gap: Callable[[float], float], *, resolution: float, largest: float = math.inf) -> float:
    r"""The $\epsilon$ (or $\mu$) below which a test refutes; rounded down, and 0 if it refutes nothing.

    The gap of a value is at most 0 where it is refuted; it passes 0 once, and is above it in the end. `largest` is not exceeded.
    """
    if gap(0.0) > 0.0:
        return 0.0
    passing, failing = 0.0, 1.0
    while failing < largest and gap(failing) <= 0.0:
        passing, failing = failing, min(2.0 * failing, largest)
    return lowered(crossing(gap, failing, passing, resolution=resolution))


class Rates(NamedTuple):
    """A false-positive and a false-negative rate, such as upper bounds that hold together."""

    false_positive: float
    false_negative: float


class Tally(Specification):
    """The errors of one test: false positives among runs without the record, false negatives among runs with it.

    The trials must be independent: runs of the mechanism, and not many guesses on one model.
    """

    game: ClassVar[str] = "two_world"
    out_trials: int = Field(ge=1, le=MOST_TRIALS)
    false_positives: int = Field(ge=0)
    in_trials: int = Field(ge=1, le=MOST_TRIALS)
    false_negatives: int = Field(ge=0)

    @model_validator(mode="after")
    def _errors_are_trials(self) -> Tally:
        for errors, trials in (("false_positives", "out_trials"), ("false_negatives", "in_trials")):
            require_count(errors, getattr(self, errors), low=0, high=getattr(self, trials))
        return self

    @classmethod
    def at(cls, threshold: float, out_scores: FloatArray, in_scores: FloatArray) -> Tally:
        """The errors of guessing IN where the score is at least a threshold; scores without and with the record, shapes (n0,) and (n1,)."""
        return cls(
            out_trials=out_scores.size,
            false_positives=int(np.count_nonzero(out_scores >= threshold)),
            in_trials=in_scores.size,
            false_negatives=int(np.count_nonzero(in_scores < threshold)),
        )

    def observed_rates(self) -> Rates:
        """The shares of errors, as counted."""
        return Rates(self.false_positives / self.out_trials, self.false_negatives / self.in_trials)

    def upper_rates(self, level: float) -> Rates:
        """Clopper and Pearson's upper bounds of both error rates, which hold together except with probability `level`."""
        return Rates(
            clopper_pearson_upper(self.false_positives, self.out_trials, 0.5 * level),
            clopper_pearson_upper(self.false_negatives, self.in_trials, 0.5 * level),
        )


class Guesses(Specification):
    """The guesses of one run: of `canaries` coin flips, `guessed` were guessed and `correct` of these rightly; the rest abstained."""

    game: ClassVar[str] = "one_run"
    canaries: int = Field(ge=1, le=MOST_TRIALS)
    guessed: int = Field(ge=1)
    correct: int = Field(ge=0)

    @model_validator(mode="after")
    def _each_is_among_the_last(self) -> Guesses:
        require_count("guessed", self.guessed, low=1, high=self.canaries)
        require_count("correct", self.correct, low=0, high=self.guessed)
        return self


GAMES: dict[str, type[Specification]] = {kind.game: kind for kind in (Tally, Guesses)}
