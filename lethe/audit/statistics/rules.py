"""Rules that choose the threshold of a test; each keeps the level it is given.

`two_world` calls the rule with the scores of both worlds; it calls the record present above the threshold, and counts both kinds of errors.

To try every threshold on the reported scores and keep the best is no rule: its bound is above the truth in far more runs than its level
says.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from lethe.audit.statistics.counts import Rates, Tally, require_array, upper_table
from lethe.audit.statistics.curves import AuditSetting
from lethe.calculus.domains import FloatArray
from lethe.documents.specification import Specification
from lethe.errors import InputError

Selection = Literal["fixed", "split", "ranks", "multi_split", "guesses", "same_data"]


class CountedErrors(NamedTuple):
    """The errors counted, and upper bounds of both rates: the epsilon they prove is above the truth with probability at most the level."""

    tally: Tally
    rates: Rates


def _bounded(tally: Tally, level: float) -> CountedErrors:
    return CountedErrors(tally, tally.upper_rates(level))


class ThresholdRule(Specification):
    """A way to choose a threshold that can be declared before the scores are seen."""

    selection: ClassVar[Selection]
    _words: ClassVar[str]

    def describe(self) -> str:
        """The rule in a few words, such as `threshold 0.5, fixed in advance`."""
        return self._words.format(**dict(self))

    @abstractmethod
    def count_errors(self, out_scores: FloatArray, in_scores: FloatArray, setting: AuditSetting) -> CountedErrors:
        """Count errors and bound their rates, so that the epsilon of the curve is wrong with probability at most the level over everything.

        Args:
            out_scores, in_scores: without and with the record, shapes (n0,) and (n1,).
            setting: its level is that of both bounds together, and of all thresholds that are tried; its curve compares these.
        """


class FixedThreshold(ThresholdRule):
    """Guess IN where the score is at least `threshold`, a number fixed before the runs."""

    selection: ClassVar[Selection] = "fixed"
    _words: ClassVar[str] = "threshold {threshold:g}, fixed in advance"
    threshold: float

    def count_errors(self, out_scores: FloatArray, in_scores: FloatArray, setting: AuditSetting) -> CountedErrors:
        """The errors at the threshold that was named beforehand, with their confidence bounds."""
        return _bounded(Tally.at(self.threshold, out_scores, in_scores), setting.level)


class Split(ThresholdRule):
    """Choose the threshold on one half of each world's runs, drawn at random with `seed`, and count errors on the other half."""

    selection: ClassVar[Selection] = "split"
    _words: ClassVar[str] = "threshold chosen on one half, counted on the other; seed {seed}"
    seed: int = Field(ge=0)

    def count_errors(self, out_scores: FloatArray, in_scores: FloatArray, setting: AuditSetting) -> CountedErrors:
        """The errors on one half of the scores, at the threshold that is best on the other half."""
        return _count_on_half(np.random.default_rng(self.seed), out_scores, in_scores, setting)


class MultiSplit(ThresholdRule):
    r"""The median, of an even number the lower one, of the bounds of many splits at half the level each.

    If the median is above the truth, at least half of the bounds are; by Markov's inequality that has probability at most
    $2 \cdot \alpha/2$, however they depend on each other. Steadier than one split.

    Reference: Meinshausen, Meier, Bühlmann 2009, arXiv:0811.2177.
    """

    selection: ClassVar[Selection] = "multi_split"
    _words: ClassVar[str] = "median of {splits} splits at half the level; seed {seed}"
    seed: int = Field(ge=0)
    splits: int = Field(default=21, ge=1, le=10_000)

    def count_errors(self, out_scores: FloatArray, in_scores: FloatArray, setting: AuditSetting) -> CountedErrors:
        """The errors of the split of median strength, of several random ones."""
        generator, half = np.random.default_rng(self.seed), setting.model_copy(update={"level": 0.5 * setting.level})
        counts = [_count_on_half(generator, out_scores, in_scores, half) for _ in range(self.splits)]
        return sorted(counts, key=lambda errors: setting.curve.strength(errors.rates, setting.delta))[(self.splits - 1) // 2]


class Ranks(ThresholdRule):
    r"""Guess IN above the r-th largest OUT score, at ranks listed before the runs, each at an equal share of the level.

    The rate at which OUT exceeds its own r-th largest of n is Beta(r, n + 1 - r), or less with ties, whose upper quantile is that of
    Clopper and Pearson with r - 1 false positives. Given the OUT scores the IN scores are independent trials. No run is spent on choosing.
    """

    selection: ClassVar[Selection] = "ranks"
    ranks: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1, max_length=1000, strict=False)]

    @model_validator(mode="after")
    def _once_each(self) -> Ranks:
        if len(set(self.ranks)) != len(self.ranks):
            raise InputError(f"ranks: got {list(self.ranks)}; it needs each rank once.", remedy="leave out what is there twice")
        return self

    def describe(self) -> str:
        """Such as `OUT ranks 5, 20, 80 declared in advance, Bonferroni`."""
        return f"OUT ranks {', '.join(map(str, self.ranks))} declared in advance, Bonferroni"

    def count_errors(self, out_scores: FloatArray, in_scores: FloatArray, setting: AuditSetting) -> CountedErrors:
        """The errors at the best of the ranks of OUT scores; InputError of a rank above the number of OUT runs."""
        out_runs = out_scores.size
        if max(self.ranks) > out_runs:
            raise InputError(
                f"ranks: got {max(self.ranks)}; there are {out_runs} OUT runs.",
                source="the argument rule",
                remedy="declare ranks up to the number of OUT runs",
            )
        ordered = np.sort(out_scores)
        counted: list[CountedErrors] = []
        for rank in self.ranks:
            missed = int(np.count_nonzero(in_scores <= ordered[out_runs - rank]))
            tally = Tally(out_trials=out_runs, false_positives=rank - 1, in_trials=in_scores.size, false_negatives=missed)
            counted.append(_bounded(tally, setting.level / len(self.ranks)))
        return max(counted, key=lambda errors: setting.curve.strength(errors.rates, setting.delta))


def best_threshold(out_scores: FloatArray, in_scores: FloatArray, setting: AuditSetting) -> float:
    """The threshold at which these scores, shapes (n0,) and (n1,), prove most. Only for judging OTHERS: on these it proves nothing."""
    first, second = require_array("out_scores", out_scores, dimensions=1), require_array("in_scores", in_scores, dimensions=1)
    ordered_out, ordered_in = np.sort(first), np.sort(second)
    candidates = np.unique(np.concatenate([ordered_out, ordered_in]))
    false_positives = first.size - np.searchsorted(ordered_out, candidates, side="left")
    false_negatives = np.searchsorted(ordered_in, candidates, side="left")
    tables = upper_table(first.size, 0.5 * setting.level), upper_table(second.size, 0.5 * setting.level)
    return float(candidates[int(np.argmax(setting.curve.strengths(tables[0][false_positives], tables[1][false_negatives], setting.delta)))])


def _count_on_half(generator: np.random.Generator, out_scores: FloatArray, in_scores: FloatArray, setting: AuditSetting) -> CountedErrors:
    """Choose the threshold on half of the scores of each world, and count errors on the other half."""
    if min(out_scores.size, in_scores.size) < 4:
        raise InputError(
            "a split needs at least four runs in each world.", source="the argument rule", remedy="run more, or fix a threshold"
        )
    first, second = generator.permutation(out_scores), generator.permutation(in_scores)
    half, second_half = first.size // 2, second.size // 2
    threshold = best_threshold(first[:half], second[:second_half], setting)
    return _bounded(Tally.at(threshold, first[half:], second[second_half:]), setting.level)
