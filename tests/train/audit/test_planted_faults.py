"""Every broken variant of the real trainers is caught, none that is sound; and a broken referee is found out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("joblib")

from planted_faults import cases, less_noise, linear_run, network_run, no_clipping, noise_once_a_pass

from lethe.audit import AuditSetting, TwoWorldGame
from lethe.audit.games.trainings import TwoWorldScores
from lethe.audit.games.two_worlds import play
from lethe.audit.games.verdict import audit_worlds
from lethe.audit.page import AuditPage

CASES = cases()
LINEAR = [name for name, case in CASES.items() if case.trainer == "fit of a Linear"]
# Of each network trainer the sound one and some faults, and fewer trainings than show each fault every time: all of it takes minutes.
NETWORKS = {"untrained model": 50, "fit, as it is": 50, "fit, clipping off": 50, "PrivacyEngine, as it is": 50}
BY_DAY, AT_NIGHT = "fit, own divisor", pytest.mark.nightly(by_day="the same test of one network")
NETWORKS |= {"PrivacyEngine, noise divided by ten": 70, BY_DAY: 45}


def test_every_trainer_is_broken_in_five_ways_and_once_in_none() -> None:
    assert len(CASES) == 21
    for trainer in ("fit of a Linear", "fit", "PrivacyEngine"):
        assert sum(case.broken for case in CASES.values() if case.trainer == trainer) == 5
        assert not CASES[f"{trainer}, as it is"].broken


@pytest.mark.parametrize("run", [linear_run(), network_run()])
def test_faults_change_what_they_say_and_nothing_else(run: Any) -> None:
    less, bare, once = less_noise(run), no_clipping(run), noise_once_a_pass(run)
    assert less.noise_stds == pytest.approx(run.noise_stds / 10)
    assert bare.noise_stds == pytest.approx(run.noise_stds)
    assert bare.clip_bound >= 10 * run.clip_bound
    assert once.noise_stds[2::3] == pytest.approx(run.noise_stds[2::3])
    assert once.noise_stds.sum() == pytest.approx(once.noise_stds[2::3].sum())
    plain = {"noise_multiplier": 1.0, "noise_at": "every_step", "clip_norm": 1.0}
    assert {changed.replace(**plain) == run.replace(**plain) for changed in (less, bare, once)} == {True}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LINEAR)
def test_linear_trainers_are_told_apart(name: str) -> None:
    """How often in 60 times: benchmarks/self_test_power.py; of 120 trainings, too, each line is right for eight seeds of eight."""
    assert CASES[name].played(runs=150, seed=1).failed == CASES[name].broken


@pytest.mark.parametrize("name", [name if name == BY_DAY else pytest.param(name, marks=AT_NIGHT) for name in NETWORKS])
def test_networks_are_told_apart(name: str) -> None:
    """Perfect guesses refute from 45 trainings on, and from 25 the smaller claim; a tenth of the noise needs 70 to show every time."""
    game = CASES[name].game().unverified()
    page = game.page(play(game.trial, TwoWorldGame(runs=NETWORKS[name]), seed=1))
    assert page.failed == CASES[name].broken


def test_a_tenth_of_the_noise_of_a_network_shows_in_so_few_trainings() -> None:
    """The canary is in two of the released sums, 2C apart in each: drawn here, not trained. 60 of 60 are at least .95, at 95 %."""
    case, drawn = CASES["fit, noise divided by ten"], np.random.default_rng(0)
    game, apart = case.game(), 2 * np.sqrt(2) / less_noise(network_run()).noise_multipliers[0]
    for _ in range(60):
        out, inside = drawn.normal(size=(2, case.runs))
        assert game.page(TwoWorldScores(out_scores=out, in_scores=inside + apart, seed=0)).verdict == "refuted"


def blind(page: AuditPage, scores: TwoWorldScores, setting: AuditSetting) -> AuditPage:
    """A referee who takes every other training for one of the other world."""
    swapped = np.arange(scores.out_scores.size) % 2 == 0
    out, inside = scores.out_scores, scores.in_scores
    mixed = TwoWorldScores(out_scores=np.where(swapped, inside, out), in_scores=np.where(swapped, out, inside), seed=scores.seed)
    return audit_worlds(page, mixed, setting)


def deaf(page: AuditPage, scores: TwoWorldScores, setting: AuditSetting) -> AuditPage:
    """A referee who takes scores for those of another seed where they are equal."""
    out, inside = np.random.default_rng(0).normal(size=(2, scores.out_scores.size))
    other = TwoWorldScores(out_scores=out, in_scores=inside, seed=0)
    return audit_worlds(page, other if scores.repeats else scores, setting)


def eager(page: AuditPage, scores: TwoWorldScores, setting: AuditSetting) -> AuditPage:
    """A referee who always whistles."""
    return page.model_copy(update={"refused": "whatever it was"})


def test_a_broken_referee_is_found_out() -> None:
    wrong: dict[Callable[..., AuditPage], list[str]] = {
        audit_worlds: [],
        blind: ["noise divided by ten"],
        deaf: ["one seed"],
        eager: ["as it is"],
    }
    found: dict[Callable[..., AuditPage], list[str]] = {referee: [] for referee in wrong}
    for line in ("as it is", "noise divided by ten", "one seed"):
        case = CASES[f"fit of a Linear, {line}"]
        game = case.game()
        scores = play(game.trial, TwoWorldGame(runs=150), seed=1)
        for referee, names in found.items():
            names += [line] if game.page(scores, referee).failed != case.broken else []
    assert found == wrong
