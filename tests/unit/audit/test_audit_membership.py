"""The estimate of Liang et al. and the bound beside it: published values, validity by simulation, and what is refused."""

import math

import numpy as np
import pytest
from how_many import examples
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import lethe
from lethe.audit import AuditSetting, membership_inference
from lethe.audit.statistics.counts import Guesses, Rates
from lethe.audit.statistics.lower_bounds import one_run
from lethe.audit.statistics.membership import printed_epsilon

SETTING = AuditSetting(delta=1e-5, neighbours="zero_out", threat="average_case")


@pytest.mark.parametrize(
    ("false_positives", "false_negatives", "expected"),
    [
        # The first two: plug-in values of an independent implementation, to its six decimals.
        (0.005, 0.12, 5.170473),
        (0.3, 0.32, 0.818296),
        (0.6, 0.6, math.log((1 - 1e-5 - 0.6) / 0.6)),
        (0.2, 0.9, math.log((1 - 1e-5 - 0.2) / 0.9)),
        (0.0, 0.4, math.inf),
        (0.4, 0.0, math.inf),
        (1.0, 1.0, -math.inf),
        (0.0, 1.0, math.log(1 - 1e-5)),
    ],
)
def test_the_formula_is_the_printed_one(false_positives: float, false_negatives: float, expected: float) -> None:
    assert printed_epsilon(Rates(false_positives, false_negatives), 1e-5) == pytest.approx(expected, abs=5e-7)


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.floats(0, 0.005))
def test_it_is_symmetric_and_falls_with_each_error(first: float, second: float, delta: float) -> None:
    value = printed_epsilon(Rates(first, second), delta)
    assert value == printed_epsilon(Rates(second, first), delta)
    assert printed_epsilon(Rates(min(1.0, first + 0.01), second), delta) <= value
    assert printed_epsilon(Rates(first, second), min(0.99, delta + 0.01)) <= value


def _answers(models: int, candidates: int, epsilon: float, generator: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Randomised response about each coin: exactly epsilon-DP in each of them, and each answer is the best attack's."""
    coins = [generator.random(candidates) < 0.5 for _ in range(models)]
    kept = 1.0 / (1.0 + math.exp(-epsilon))
    said = [np.where(generator.random(candidates) < kept, flags, ~flags) for flags in coins]
    return [np.where(word, kept, 1.0 - kept) for word in said], coins


@pytest.mark.slow
def test_the_bound_keeps_its_level_over_several_models_and_the_estimate_keeps_none() -> None:
    """Truth 1, level 0.05, three models of 200 candidates together: at most 5 in 100 bounds above it, and half of the estimates."""
    generator, audits, above, printed_above = np.random.default_rng(3), examples(400), 0, 0
    for _ in range(audits):
        probabilities, coins = _answers(3, 200, 1.0, generator)
        found = membership_inference(probabilities, coins, SETTING, guesses=[(150, 150)])
        above += found.bound.epsilon > 1.0
        printed_above += np.mean(found.printed) > 1.0
    assert stats.binomtest(above, audits, 0.05, alternative="greater").pvalue > 1e-3
    assert above > 0  # it is not so loose that nothing could fail
    assert printed_above > 0.3 * audits


def test_what_is_said_of_both() -> None:
    generator = np.random.default_rng(0)
    probabilities, coins = _answers(2, 300, 3.0, generator)
    found = membership_inference(probabilities, coins, SETTING, guesses=[(60, 60), (30, 0)], seeds=[5, 7])
    assert found.bound.kind == "certified"
    assert found.bound.level == 0.05
    assert found.bound.unit == "canary"
    assert found.bound.seeds == (5, 7)
    assert isinstance(found.bound.counts, Guesses)
    assert found.bound.counts.canaries == 600
    assert "600 canaries with a coin each" in found.bound.describe()
    assert "in one run" not in found.bound.describe()
    assert found.bound == one_run(np.concatenate(probabilities), np.concatenate(coins), SETTING, guesses=[(60, 60), (30, 0)], seeds=[5, 7])
    assert 1.0 < found.bound.epsilon < 3.0
    for values, flags, estimate, printed in zip(probabilities, coins, found.estimates, found.printed, strict=True):
        assert (estimate.kind, estimate.level, estimate.unit) == ("point_estimate", None, "guess")
        assert any("not independent" in warning for warning in estimate.warnings)
        wrong = Rates(np.mean(values[~flags] >= 0.5), np.mean(values[flags] < 0.5))
        assert printed == pytest.approx(printed_epsilon(wrong, 1e-5), rel=1e-12)
        assert estimate.epsilon == pytest.approx(max(0.0, printed), rel=1e-12)


def test_a_guess_worse_than_chance_is_negative_as_printed_and_zero_as_a_result() -> None:
    flags = np.random.default_rng(2).random(100) < 0.5
    found = membership_inference(
        [np.where(flags, 0.4, 0.6) + np.arange(100) * 1e-4 * (1 - 2 * flags)], [flags], SETTING, guesses=[(10, 10)]
    )
    assert found.printed == (-math.inf,)
    assert found.estimates[0].epsilon == found.bound.epsilon == 0.0


FLAGS = np.arange(20) % 2 == 0
VALUES = np.linspace(0.1, 0.9, 20)


@pytest.mark.parametrize(
    ("probabilities", "included"),
    [
        ([], []),
        ([VALUES], []),
        ([VALUES], [FLAGS, FLAGS]),
        ([VALUES], [FLAGS[:19]]),
        ([VALUES], [FLAGS.astype(float)]),
        ([VALUES + 0.2], [FLAGS]),
        ([VALUES - 0.2], [FLAGS]),
        ([np.where(FLAGS, np.nan, VALUES)], [FLAGS]),
        ([VALUES], [np.ones(20, dtype=bool)]),
        ([VALUES], [np.zeros(20, dtype=bool)]),
    ],
)
def test_what_cannot_be_used_is_refused(probabilities: list[np.ndarray], included: list[np.ndarray]) -> None:
    with pytest.raises(lethe.InputError):
        membership_inference(probabilities, included, SETTING, guesses=[(2, 2)])


def test_candidates_are_natural_records() -> None:
    with pytest.raises(lethe.InputError, match="average_case"):
        membership_inference([VALUES], [FLAGS], SETTING.model_copy(update={"threat": "final_model"}), guesses=[(2, 2)])


@pytest.mark.parametrize("rates", [(-0.1, 0.5), (0.5, 1.1), (math.nan, 0.5), (True, 0.5)])
def test_rates_that_are_none(rates: tuple[float, float]) -> None:
    with pytest.raises(lethe.InputError):
        printed_epsilon(Rates(*rates), 1e-5)
