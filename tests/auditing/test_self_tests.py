"""The self-test: every broken variant of the real trainers is caught, none that is sound, and its words and numbers are right."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("joblib")

from lethe.audit import AuditPage
from lethe.audit.training import usual_ranks
from lethe.auditing import SelfTest, SelfTestRow
from lethe.auditing.fault_cases import LEVEL, cases
from lethe.auditing.faults import less_noise, no_clipping, noise_once_a_pass
from lethe.documents import to_json

LINES = {case.name: case for case in cases()}
LINEAR = [name for name, case in LINES.items() if case.trainer == "fit_linear"]
# Of each trainer the sound line and some faults: all of them take the self-test's three minutes.
NETWORKS = ["fit, as it is", "fit, clipping off", "fit, own divisor", "PrivacyEngine, as it is", "PrivacyEngine, noise divided by ten"]


def test_every_trainer_is_broken_in_five_ways_and_once_in_none() -> None:
    assert len(LINES) == len(cases()) == 20
    for trainer in ("fit_linear", "fit", "PrivacyEngine"):
        broken = {case.broken for case in LINES.values() if case.trainer == trainer}
        assert len(broken - {None}) == 5
        assert None in broken


def test_faults_change_what_they_say_and_nothing_else() -> None:
    for name in ("fit_linear, as it is", "fit, as it is"):
        run = LINES[name].game().train.run  # type: ignore[attr-defined]
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


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_linear_trainers_are_told_apart(name: str, seed: int) -> None:
    """How often in 60 times: benchmarks/self_test_power.py."""
    case = LINES[name]
    page, _ = case.played(runs=None, seed=seed, workers=1)
    assert page.failed == (case.broken is not None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["untrained model", *NETWORKS])
def test_networks_are_told_apart(name: str) -> None:
    case = LINES[name]
    page, _ = case.played(runs=None, seed=1, workers=1)
    assert page.failed == (case.broken is not None)


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
