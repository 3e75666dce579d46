"""Private selection as it chooses: the best candidate, by its exact law, and nothing told but that."""

from __future__ import annotations

import math

import numpy as np
import pytest
from exact_selection import best_of
from how_many import by_night

from lethe.calculus.guarantees import GDP
from lethe.mechanisms.repetitions import PoissonRepetitions, TruncatedNegativeBinomial
from lethe.mechanisms.selection import choose, selection_guarantee


def pick(**changes):
    options = {
        "repetitions": TruncatedNegativeBinomial(eta=1.0, gamma=0.05),
        "train_guarantee": GDP(0.3),
        "score_guarantee": "public",
        "generator": np.random.default_rng(0),
    }
    positional = {
        "candidates": ("a", "b", "c"),
        "train": lambda name: name * 2,
        "score": lambda result: {"aa": 1, "bb": 3, "cc": 2}[result],
    }
    arguments = {**positional, **options, **changes}
    return choose(arguments.pop("candidates"), arguments.pop("train"), arguments.pop("score"), **arguments)


def test_the_best_candidate_is_kept():
    chosen = pick()
    assert (chosen.candidate, chosen.result, chosen.score) == ("b", "bb", 3.0)
    assert chosen.statement.planned == selection_guarantee(GDP(0.3), TruncatedNegativeBinomial(eta=1.0, gamma=0.05))


def test_a_private_score_is_part_of_every_try():
    chosen = pick(score_guarantee=GDP(0.4), delta=1e-5)
    stated = chosen.statement.planned.epsilon(1e-5)
    assert stated == pytest.approx(pick(train_guarantee=GDP(0.5), delta=1e-5).statement.planned.epsilon(1e-5), rel=1e-9)
    assert stated > pick(delta=1e-5).statement.planned.epsilon(1e-5)


def test_the_choice_follows_its_exact_law():
    """Candidates drawn uniformly, ties among equal scores and the number of tries included."""
    repetitions = TruncatedNegativeBinomial(eta=0.0, gamma=0.2)
    generator = np.random.default_rng(11)
    times = 300 if by_night() else 100
    rank = {"a": 0.0, "b": 1.0, "c": 2.0}
    drawn = [pick(repetitions=repetitions, generator=generator, score=lambda result: rank[result[0]]).candidate for _ in range(times)]
    shares = np.array([drawn.count(name) for name in "abc"]) / times
    assert shares == pytest.approx(best_of(np.full(3, 1 / 3), repetitions)[:3], abs=5.0 * 0.5 / math.sqrt(times))
    tied = [pick(repetitions=repetitions, generator=generator, score=lambda _: 1.0).candidate for _ in range(times)]
    assert [tied.count(name) / times for name in "abc"] == pytest.approx([1 / 3] * 3, abs=5.0 * 0.5 / math.sqrt(times))


def test_a_score_that_is_no_number_counts_as_the_worst():
    chosen = pick(score=lambda result: {"aa": math.nan, "bb": -1e300, "cc": math.nan}[result])
    assert chosen.candidate == "b"
    assert pick(score=lambda _: math.nan).score == -math.inf


def test_no_try_gives_no_result():
    empty = pick(repetitions=PoissonRepetitions(rate=1e-12))
    assert (empty.candidate, empty.result, empty.score) == (None, None, None)
    assert empty.statement.planned.epsilon(1e-5) < math.inf


def test_fresh_entropy_unless_a_generator_is_given():
    draws = {tuple(pick(generator=None, score=lambda _: 0.0).candidate for _ in range(12)) for _ in range(3)}
    assert len(draws) == 3


def test_how_often_it_tried_is_not_in_the_release():
    chosen = pick()
    assert set(chosen.__dataclass_fields__) == {"candidate", "result", "score", "statement"}
