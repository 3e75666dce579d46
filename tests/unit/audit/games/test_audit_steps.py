"""Two trainings that show every step: what is found is below the truth of a sampled Gaussian, and conditional; what is refused."""

import math
from typing import Any

import numpy as np
import pytest
from audit_truths import assert_valid
from how_many import by_night, examples

from lethe.audit import AuditSetting, Claim
from lethe.audit.games.observed_steps import audit_steps, watch_steps
from lethe.audit.games.scores import TwoWorldScores
from lethe.audit.games.trials import Observations
from lethe.audit.page import AuditPage
from lethe.audit.statistics import sampled_composition
from lethe.audit.statistics.curves import gaussian_epsilon
from lethe.calculus.sampled.gaussian import sampled_gaussian
from lethe.errors import HypothesisError, InputError

STEPS, E1 = 1500, np.array([1.0, 0.0])
PAGE = AuditPage(subject="a mechanism", canary="a gradient")
SETTING = AuditSetting(delta=1e-5, neighbours="add_or_remove", threat="white_box")


class Sampled:
    """Every gradient of a run: standard noise, and mu along the first axis in a share q of the steps."""

    def __init__(self, mu: float, q: float, steps: int = STEPS) -> None:
        self.mu, self.q, self.steps = mu, q, steps

    def __call__(self, inside: bool, seed: int) -> Observations:
        drawn = np.random.default_rng(seed)
        steps = drawn.normal(size=(self.steps, 2))
        if inside:
            steps[:, 0] += self.mu * (drawn.random(self.steps) < self.q)
        return Observations(start=np.zeros(2), final=-steps.sum(axis=0), steps=steps)


@pytest.mark.slow
def test_a_sampled_gaussian_is_found_and_not_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    if not by_night():  # a coarser grid: a bound from below that is a little lower
        monkeypatch.setattr(sampled_composition, "_POINTS", 1 << 17)
        monkeypatch.setattr(sampled_composition, "_CELLS", 20_000)
    shown = watch_steps(Sampled(2.0, 0.3), E1, seed=2)
    page = audit_steps(PAGE, shown, SETTING, sampling_probability=0.3)
    (found,) = page.audits
    truth = sampled_gaussian(0.3, [1 / 2.0] * STEPS, "add_or_remove", "poisson").epsilon(1e-5)
    assert (found.kind, found.unit, found.threat, found.seeds) == ("conditional", "step", "white_box", (2,))
    assert found.rule.endswith("seed 2")
    assert 0.3 * truth < found.epsilon < truth


@pytest.mark.slow
def test_steps_that_all_hold_the_record_compose_as_gaussians_and_keep_the_level() -> None:
    truth, setting = gaussian_epsilon(0.5 * math.sqrt(200), 1e-5), SETTING.model_copy(update={"level": 0.4})
    found = []
    for seed in range(examples(200)):
        shown = watch_steps(Sampled(0.5, 1.0, 200), E1, seed=seed)
        found.append(audit_steps(PAGE, shown, setting, sampling_probability=1.0).audits[0].epsilon)
    assert_valid(np.array(found), truth, level=0.4)
    assert np.mean(np.array(found) > truth) > 0.01  # it is not so loose that nothing could fail


def test_it_never_refutes() -> None:
    claim = Claim(epsilon=0.0, delta=1e-5, neighbours="add_or_remove", release="all", source="nothing")
    shown = watch_steps(Sampled(3.0, 1.0), E1, seed=0)
    page = audit_steps(PAGE.model_copy(update={"claim": claim}), shown, SETTING, sampling_probability=1.0)
    assert page.audits[0].epsilon > 1.0
    assert (page.verdict, page.failed) == ("not_comparable", False)
    assert "nothing is certified" in page.says


def test_worlds_have_seeds_of_their_own_and_steps_directions_of_their_own() -> None:
    shown = watch_steps(Sampled(0.0, 1.0), E1, seed=0)
    assert shown.out_scores.shape == shown.in_scores.shape == (STEPS,)
    assert not np.isin(shown.out_scores, shown.in_scores).any()
    late = np.zeros((STEPS, 2))
    late[-1] = E1
    assert np.count_nonzero(watch_steps(Sampled(0.0, 1.0), late, seed=0).out_scores) == 1


def test_a_record_seen_too_often_refutes_its_sampling() -> None:
    shown = watch_steps(Sampled(6.0, 0.9), E1, seed=0)
    with pytest.raises(HypothesisError, match="more steps than its sampling rate"):
        audit_steps(PAGE, shown, SETTING, sampling_probability=0.1)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"in_scores": np.arange(9.0)}, "9 steps"),
        ({"in_scores": np.full(10, np.nan)}, "finite"),
        ({"in_scores": np.ones(10)}, "all 10"),
        ({"sampling_probability": 0.0}, "sampling_probability"),
        ({"sampling_probability": 1.5}, "sampling_probability"),
        ({"delta": 0.0}, "delta"),
        ({"threat": "final_model"}, "white_box"),
        ({"seed": -1}, "seed"),
    ],
)
def test_what_is_refused(change: dict[str, Any], word: str) -> None:
    given: dict[str, Any] = {
        "out_scores": np.arange(10.0),
        "in_scores": np.arange(10.0) + 5,
        "seed": 0,
        "sampling_probability": 1.0,
        **change,
    }
    setting = SETTING.model_copy(update={name: change[name] for name in ("delta", "threat") if name in change})
    scores = TwoWorldScores(out_scores=given["out_scores"], in_scores=given["in_scores"], seed=given["seed"])
    with pytest.raises(InputError, match=word):
        audit_steps(PAGE, scores, setting, sampling_probability=given["sampling_probability"])


def test_worlds_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="does not show"):
        watch_steps(lambda inside, seed: Observations(start=E1, final=E1), E1, seed=0)
    with pytest.raises(InputError, match="directions"):
        watch_steps(Sampled(1.0, 1.0), np.ones(3), seed=0)
    with pytest.raises(InputError, match="raised ZeroDivisionError"):
        watch_steps(lambda inside, seed: 1 / 0, E1, seed=0)  # type: ignore[arg-type,return-value]
