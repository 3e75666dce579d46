"""The self-test: every broken variant of the real trainers is caught, none that is sound, and its words and numbers are right."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("joblib")

from unverified import unverified

from lethe.audit import AuditSetting, TwoWorldGame
from lethe.audit.games.scores import TwoWorldScores
from lethe.audit.games.two_worlds import play
from lethe.audit.games.verdict import audit_worlds, usual_ranks
from lethe.audit.page import AuditPage
from lethe.audit.trainers import fault_cases, self_tests
from lethe.audit.trainers.fault_cases import LEVEL, cases
from lethe.audit.trainers.faults import less_noise, no_clipping, noise_once_a_pass
from lethe.audit.trainers.self_tests import SelfTest, SelfTestRow, self_test
from lethe.documents.strict import to_json

LINES = {case.name: case for case in cases()}
LINEAR = [name for name, case in LINES.items() if case.trainer == "fit of a Linear"]
# Of each trainer the sound line and some faults, and fewer trainings than in the self-test: all of it takes minutes.
NETWORKS = ["fit, as it is", "fit, clipping off", "fit, own divisor", "PrivacyEngine, as it is", "PrivacyEngine, noise divided by ten"]
BY_DAY = "fit, own divisor"
AT_NIGHT = pytest.mark.nightly(by_day="the same test of one network")
TRAININGS = {"fit, own divisor": 45, "PrivacyEngine, noise divided by ten": 70}


def test_every_trainer_is_broken_in_five_ways_and_once_in_none() -> None:
    assert len(LINES) == len(cases()) == 21
    for trainer in ("fit of a Linear", "fit", "PrivacyEngine"):
        broken = {case.broken for case in LINES.values() if case.trainer == trainer}
        assert len(broken - {None}) == 5
        assert None in broken


def test_faults_change_what_they_say_and_nothing_else() -> None:
    for name in ("fit of a Linear, as it is", "fit, as it is"):
        run = LINES[name].game().trial.train.run  # type: ignore[attr-defined]
        assert less_noise(run).noise_stds == pytest.approx(run.noise_stds / 10)
        bare = no_clipping(run)
        assert bare.noise_stds == pytest.approx(run.noise_stds)
        assert bare.clip_bound >= 10 * run.clip_bound
        once = noise_once_a_pass(run)
        assert once.noise_stds[2::3] == pytest.approx(run.noise_stds[2::3])
        assert once.noise_stds.sum() == pytest.approx(once.noise_stds[2::3].sum())
        for changed in (less_noise(run), bare, once):
            assert changed.replace(noise_multiplier=1.0, noise_at="every_step", clip_norm=1.0) == run.replace(
                noise_multiplier=1.0, clip_norm=1.0
            )


PLAYED: dict[str, TwoWorldScores] = {}


def played_once(trials: Any, game: TwoWorldGame, *, seed: int) -> TwoWorldScores:
    """Every referee, and the test of each line, sees the same trainings: the three lines differ in how they train."""
    name = repr((trials.trial.train, game, seed))
    if name not in PLAYED:
        PLAYED[name] = play(trials, game, seed=seed)
    return PLAYED[name]


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", LINEAR)
def test_linear_trainers_are_told_apart(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How often in 60 times: benchmarks/self_test_power.py; of 120 trainings, too, each line is right for eight seeds of eight."""
    monkeypatch.setattr(fault_cases, "play", played_once)
    case = LINES[name]
    page, _ = case.played(runs=150, seed=1, workers=None)
    assert page.failed == (case.broken is not None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [BY_DAY, *(pytest.param(name, marks=AT_NIGHT) for name in ["untrained model", *NETWORKS] if name != BY_DAY)]
)
def test_networks_are_told_apart(name: str) -> None:
    """Perfect guesses refute from 45 trainings on, and from 25 the smaller claim; a tenth of the noise needs 70 to show every time."""
    case = LINES[name]
    game = case.game()
    played = replace(case, game=lambda: replace(game, trial=replace(game.trial, train=unverified(game.trial.train))))
    page, _ = played.played(runs=TRAININGS.get(name, 50), seed=1, workers=1)
    assert page.failed == (case.broken is not None)


@pytest.mark.slow
def test_a_tenth_of_the_noise_of_a_network_shows_in_so_few_trainings() -> None:
    """The canary is in two of the released sums, 2C apart in each: drawn here, not trained. 60 of 60 are at least .95, at 95 %."""
    case = LINES["fit, noise divided by ten"]
    game = case.game()
    apart = 2 * np.sqrt(2) / less_noise(LINES["fit, as it is"].game().trial.train.run).noise_multipliers[0]  # type: ignore[attr-defined]
    drawn = np.random.default_rng(0)
    for _ in range(60):
        out, inside = drawn.normal(size=(2, case.runs))
        page = game.page(TwoWorldScores(out_scores=out, in_scores=inside + apart, seed=0))
        assert page.verdict == "refuted"


def blind(page: AuditPage, scores: TwoWorldScores, setting: AuditSetting) -> AuditPage:
    """A referee who takes every other training for one of the other world."""
    swapped = np.arange(scores.out_scores.size) % 2 == 0
    out, inside = scores.out_scores, scores.in_scores
    mixed = TwoWorldScores(out_scores=np.where(swapped, inside, out), in_scores=np.where(swapped, out, inside), seed=scores.seed)
    return audit_worlds(page, mixed, setting)


def deaf(page: AuditPage, scores: TwoWorldScores, setting: AuditSetting) -> AuditPage:
    """A referee who takes scores for those of another seed where they are equal."""
    drawn = np.random.default_rng(0)
    out, inside = drawn.normal(size=(2, scores.out_scores.size)) if scores.repeats else (scores.out_scores, scores.in_scores)
    return audit_worlds(page, TwoWorldScores(out_scores=out, in_scores=inside, seed=scores.seed), setting)


def eager(page: AuditPage, scores: TwoWorldScores, setting: AuditSetting) -> AuditPage:
    """A referee who always whistles."""
    del scores, setting
    return page.model_copy(update={"refused": "whatever it was"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("referee", "wrong"),
    [
        (audit_worlds, []),
        (blind, ["fit of a Linear, noise divided by ten"]),
        (deaf, ["fit of a Linear, one seed"]),
        (eager, ["fit of a Linear, as it is"]),
    ],
)
def test_a_broken_referee_is_found_out(referee: Callable[..., AuditPage], wrong: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("fit of a Linear, as it is", "fit of a Linear, noise divided by ten", "fit of a Linear, one seed")
    monkeypatch.setattr(self_tests, "cases", lambda: [LINES[name] for name in lines])
    monkeypatch.setattr(fault_cases, "play", played_once)
    monkeypatch.setattr(fault_cases, "audit_worlds", referee)
    result = self_test(runs=150, seed=1)
    assert [row.name for row in result.rows if not row.right] == wrong
    assert result.passed == (not wrong)


def test_ranks_are_declared_by_the_number_of_runs_alone() -> None:
    assert LEVEL == 1e-3
    assert all(usual_ranks(case.runs).ranks for case in LINES.values())


def row(broken: str | None, refused: str | None) -> SelfTestRow:
    page = AuditPage(subject="a trainer", canary="a record", refused=refused)
    return SelfTestRow(name="line", trainer="fit", broken=broken, expected="quiet" if broken is None else "caught", page=page, seconds=1.0)


@pytest.mark.parametrize(("broken", "refused", "right"), [(None, None, True), (None, "x", False), ("y", "x", True), ("y", None, False)])
def test_a_row_is_right_if_the_audit_said_what_it_must(broken: str | None, refused: str | None, right: bool) -> None:
    result = SelfTest(rows=(row(None, None), row(broken, refused)))
    assert result.rows[1].right == result.passed == right
    assert ("WRONG" in result.describe()) != right
    assert result.seconds == 2.0
    assert to_json(result.to_dict())
