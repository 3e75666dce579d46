"""The theorem on correlated noise, against the exact privacy of runs whose iterates are jointly Gaussian; and who else speaks of it."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from helpers import make_run
from strategies import BANDED, BUFFERED, DELTA, adaptive_losses, contributions_of, noises, strategy_of, worth_the_name

import lethe
from lethe.accounting.certify import cumulative_privacy
from lethe.accounting.compare import compare
from lethe.calculus.correlated.matrices import binary_tree
from lethe.calculus.correlated.sensitivity import sensitivity
from lethe.calculus.guarantees import GDP
from lethe.errors import InputError
from lethe.integrations.dp_accounting import IterateDpEvent, LastIterateDpEvent, LetheAccountant, to_dp_event
from lethe.report.formats import markdown
from lethe.report.sections.build import document_of
from lethe.report.subject import subject_of
from lethe.run.noise import LowerTriangular
from lethe.run.noise.strategies import growths
from lethe.studio.answers import answer, python_of
from lethe.studio.state import State
from lethe.theorems.correlated_noise import slot_mus

OTHERS = {"zero_out": 1.0, "replace_one": 2.0}
SECRET = {"design": "shuffled_once", "size": 10}


def run_of(noise: Any = BANDED, **changes: Any) -> lethe.Run:
    return make_run(**{"noise": noise, "release": "all", **changes})


def mu_of(run: lethe.Run) -> float:
    """By the definition alone."""
    assert isinstance(run.noise_multiplier, float)
    return OTHERS[run.neighbours] * sensitivity(strategy_of(run), run.steps_per_pass) / run.noise_multiplier


def exact_mu(run: lethe.Run, slot: int, factor: float) -> float:
    """Of all iterates together where the record's gradient never changes: mean vectors apart, and their covariance, from the recursion.

    Every coordinate that the gradient points along is the same, so one dimension says all. The iterates are
    x_t = x_{t-1} - (lambda_t / b) (g_t + w_t), w = C^{-1} z.
    """
    steps, scale = run.total_steps, run.step_sizes / run.batch_size
    mixing = np.tril(np.ones((steps, steps))) * scale
    spread = mixing @ np.linalg.inv(strategy_of(run)) * run.uncorrelated.noise_multipliers[0] * run.clip_bound
    moved = mixing @ contributions_of(slot, run.steps_per_pass, steps, np.full((steps, 1), factor * run.clip_bound))[:, 0]
    return float(np.sqrt(moved @ np.linalg.solve(spread @ spread.T, moved)))


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize("batches", [{"design": "full"}, {"design": "cyclic", "size": 30}, {"design": "shuffled_once", "size": 30}])
@pytest.mark.parametrize("noise", [BANDED, BUFFERED])
def test_it_is_exact_where_gradients_never_change(noise: dict[str, Any], batches: dict[str, Any], relation: Any) -> None:
    """A bound 1 % too small, or too large, fails; a linear loss attains it, whatever the step sizes are."""
    sizes = [0.1 * (1 + step % 4) for step in range(10)]
    run = run_of(noise, batches=batches, steps=10, step_size=sizes, neighbours=relation, clip_norm=0.7, loss={"kind": "unknown"})
    slots = range(min(run.steps_per_pass, 10))
    exact = [exact_mu(run, slot, OTHERS[relation]) for slot in slots]
    assert slot_mus(run) == pytest.approx(exact, rel=1e-8)
    certificate = lethe.certify(run, DELTA)
    assert certificate.theorem == "correlated-noise"
    if batches["design"] == "shuffled_once":
        mixture = sum(GDP(mu).delta(certificate.epsilon) for mu in exact) / len(exact)
        assert mixture == pytest.approx(DELTA, rel=1e-6)
        assert certificate.epsilon < GDP(max(exact)).epsilon(DELTA)
    else:
        assert certificate.epsilon == pytest.approx(GDP(max(exact)).epsilon(DELTA), rel=1e-8)


@pytest.mark.parametrize("backwards", [False, True])
def test_gradients_that_answer_the_noise_reach_no_more(*, backwards: bool) -> None:
    """An adversary who sees every output and turns the record's gradient by it: the loss of privacy stays that of the guarantee."""
    changes = {"neighbours": "zero_out", "clip_norm": 1.0, "loss": {"kind": "unknown"}, "noise_multiplier": 2.0}
    run = run_of(records=2, batches={"design": "cyclic", "size": 1}, steps=6, **changes)
    losses = adaptive_losses(strategy_of(run), 2.0, (0,), 2, backwards=backwards)
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        worth_the_name(losses, epsilon, GDP(float(slot_mus(run).max())).delta(epsilon), 0.3)


def test_the_identity_is_composition_and_the_scale_of_a_strategy_is_the_noise_s() -> None:
    """Twice C is half the noise: the same mechanism as with half the multiplier."""
    for batches in ({"design": "cyclic", "size": 10}, {"design": "full"}, SECRET):
        run = run_of({"kind": "banded_toeplitz", "coefficients": [1.0]}, batches=batches)
        independent = lethe.certify(run.uncorrelated, DELTA, theorems=["composition"])
        assert lethe.certify(run, DELTA).epsilon == pytest.approx(independent.epsilon, rel=1e-9)
    twice = run_of({**BANDED, "coefficients": [2.0, 1.2, 0.6]}, noise_multiplier=10.0)
    assert lethe.certify(twice, DELTA).epsilon == pytest.approx(lethe.certify(run_of(), DELTA).epsilon, rel=1e-9)
    # Softmax regression of feature norm 1 has gradients up to the root of 2; clipping at 10 never acts.
    run = run_of(clip_norm=10.0, noise_multiplier=50.0 * math.sqrt(2.0) / 10.0)
    assert slot_mus(run) == pytest.approx(slot_mus(run_of(clip_norm=math.sqrt(2.0), noise_multiplier=50.0)), rel=1e-9)
    for none in (run_of(noise_multiplier=0.0), run_of(seeded=True)):
        assert lethe.certify(none, DELTA).epsilon == math.inf


@pytest.mark.parametrize("noise", [BANDED, BUFFERED])
def test_planned_noise_meets_its_target_and_no_less_would(noise: dict[str, Any]) -> None:
    for design in ("cyclic", "shuffled_once"):
        run = run_of(noise, noise_multiplier=None, batches={"design": design, "size": 10})
        planned = lethe.plan(run, epsilon=1.0, delta=DELTA)
        assert planned.noise == run.noise
        assert 0.9999 < lethe.certify(planned, DELTA).epsilon <= 1.0
        assert lethe.certify(planned.with_noise_scaled(0.999), DELTA).epsilon > 1.0


def test_certificates_of_it_are_verified_and_add_up() -> None:
    first, second = (lethe.certify(run_of(noise), DELTA) for noise in (BANDED, BUFFERED))
    for certificate in (first, second):
        said = lethe.verify(certificate)
        assert said.follows.yes
        assert said.private.yes
        assert not lethe.verify(replace(certificate, guarantee=GDP(0.1), epsilon=GDP(0.1).epsilon(DELTA))).follows.yes
    both = lethe.total([first, second], DELTA).epsilon
    assert both == pytest.approx(GDP(math.hypot(mu_of(first.run), mu_of(second.run))).epsilon(DELTA), rel=1e-6)


def test_the_studio_keeps_the_noise_and_refuses_to_draw_it() -> None:
    run = run_of()
    state = State.of_run(run)
    assert state.question().run == run
    with pytest.raises(InputError, match="banded_toeplitz"):
        answer(state.query())
    assert "noise=lethe.noise.BandedToeplitz(coefficients=(1.0, 0.6, 0.3, ))" in python_of(run, DELTA)


def test_a_run_reads_back_what_it_wrote(tmp_path: Path) -> None:
    for noise in noises(tmp_path, 50):
        run = run_of(noise)
        run.save(tmp_path / "run.yaml")
        again = lethe.Run.load(tmp_path / "run.yaml")
        assert again == run
        assert again.run_id == run.run_id != run.uncorrelated.run_id
        certificate = lethe.certify(run, DELTA)
        certificate.save(tmp_path / "certificate.json")
        assert lethe.Certificate.load(tmp_path / "certificate.json").epsilon == certificate.epsilon
        inverse = np.linalg.inv(strategy_of(run))
        assert growths(run.noise, 50) == pytest.approx(np.sqrt(np.diagonal(inverse @ inverse.T)), rel=1e-9)  # type: ignore[arg-type]
    assert "noise" not in make_run().to_document()
    assert make_run(noise={"kind": "independent"}) == make_run(noise=None) == make_run()


def test_a_matrix_is_known_by_its_hash(tmp_path: Path) -> None:
    noise = LowerTriangular.saved(binary_tree(50), tmp_path / "tree.npy")
    with pytest.raises(InputError, match="for 50 steps; the run has 40"):
        make_run(noise=noise, passes=4)
    with pytest.raises(InputError, match="hash"):
        LowerTriangular(file=noise.file, sha256="0" * 64)
    (tmp_path / "other.npy").write_bytes((tmp_path / "tree.npy").read_bytes()[:-8] + b"12345678")
    with pytest.raises(InputError, match="hash"):
        LowerTriangular(file=str(tmp_path / "other.npy"), sha256=noise.sha256)
    with (tmp_path / "archive.npy").open("wb") as archive:
        np.savez(archive, C=binary_tree(50))
    with pytest.raises(InputError, match="cannot be read"):
        LowerTriangular.at(tmp_path / "archive.npy")
    for wrong in (np.triu(np.ones((4, 4))), np.eye(4) - np.eye(4), np.ones(4)):
        with pytest.raises(InputError):
            LowerTriangular.saved(wrong, tmp_path / "wrong.npy")
    with pytest.raises(InputError, match=r"\.npy"):
        LowerTriangular.saved(np.eye(4), tmp_path / "matrix.txt")
    assert not (tmp_path / "wrong.npy").exists()


def test_the_event_is_one_gaussian_of_the_strategy_s_sensitivity() -> None:
    for neighbours in OTHERS:
        run = run_of(neighbours=neighbours)
        certificate = lethe.certify(run, DELTA)
        exported = to_dp_event(certificate)
        assert isinstance(exported.event, dp_accounting.GaussianDpEvent)
        assert exported.event.noise_multiplier == pytest.approx(1.0 / mu_of(run), rel=1e-9)
        assert exported.event.noise_multiplier <= 1.0 / mu_of(run) * (1 + 1e-13)
        accountant = PLDAccountant(exported.neighbouring_relation).compose(exported.event)
        assert accountant.get_epsilon(DELTA) == pytest.approx(certificate.epsilon, rel=1e-3)


def test_executions_add_up_and_whatever_is_shown_of_one_costs_the_same() -> None:
    """A secret slot is no event, but adds up."""
    run = run_of(release="last")
    accountant = LetheAccountant(NeighboringRelation.REPLACE_ONE)
    accountant.compose(LastIterateDpEvent(run, "monday"))
    once = accountant.get_epsilon(DELTA)
    assert once == pytest.approx(GDP(mu_of(run)).epsilon(DELTA), rel=1e-9)
    accountant.compose(IterateDpEvent(run, 3, "monday"))
    assert accountant.get_epsilon(DELTA) == once
    accountant.compose(LastIterateDpEvent(run, "tuesday"))
    assert accountant.get_epsilon(DELTA) == pytest.approx(GDP(math.sqrt(2) * mu_of(run)).epsilon(DELTA), rel=1e-9)
    secret, accountant = run_of(batches=SECRET), LetheAccountant(NeighboringRelation.REPLACE_ONE)
    with pytest.raises(InputError, match="order of the batches is secret"):
        to_dp_event(lethe.certify(secret, DELTA))
    accountant.compose(LastIterateDpEvent(secret, "monday"))
    assert accountant.get_epsilon(DELTA) == pytest.approx(lethe.certify(secret, DELTA).epsilon, rel=1e-9)


def test_sweeps_keep_the_strategy(tmp_path: Path) -> None:
    run = run_of()
    for over, values, moved in (
        ("noise", [2.0, 10.0], [run.replace(noise_multiplier=value) for value in (2.0, 10.0)]),
        ("passes", [1, 8], [run.replace(passes=value) for value in (1, 8)]),
        ("steps", [15, 60], [run.replace(passes=None, steps=value) for value in (15, 60)]),
    ):
        lines: Any = compare(run, DELTA, over=over, values=values, theorems=["correlated-noise"]).lines  # type: ignore[call-overload]
        assert [row.epsilon for row in lines[0]] == pytest.approx([GDP(mu_of(one)).epsilon(DELTA) for one in moved], rel=1e-9)
    assert len(compare(run, DELTA, over="noise").values) > 5
    matrix = run_of(LowerTriangular.saved(binary_tree(50), tmp_path / "tree.npy"))
    with pytest.raises(InputError, match="for 50 steps; the run has 10"):
        compare(matrix, DELTA, over="steps", values=[10])
    with pytest.raises(InputError, match="for 50 steps; the run has"):
        cumulative_privacy(matrix, DELTA, points=3)


def test_what_earlier_ends_would_have_cost() -> None:
    run = run_of(BUFFERED)
    found = cumulative_privacy(run, DELTA, points=4)
    expected = [GDP(mu_of(run.replace(passes=None, steps=steps))).epsilon(DELTA) for steps in found.steps]
    assert found.every_iterate == pytest.approx(expected, rel=1e-9)
    assert found.last_iterate == found.every_iterate
    assert found.every_iterate[-1] == lethe.certify(run, DELTA).epsilon


def test_the_report_says_how_noise_is_correlated_and_how_large_it_is() -> None:
    run = run_of()
    assert run.noise is not None
    page = document_of(subject_of(lethe.certify(run, DELTA)))
    sections = {section.key: section for section in page.sections}
    text = markdown(page)
    assert "correlated over the steps (banded Toeplitz noise)" in text
    assert "what is drawn for a step has the multiplier 5" in text
    table = next(block for block in sections["noise"].blocks if hasattr(block, "rows"))
    largest = 5.0 * growths(run.noise, 50)
    shown = {int(row[0]): float(row[1]) for row in table.rows}  # type: ignore[attr-defined]
    assert shown == pytest.approx({step: largest[step - 1] for step in shown}, rel=1e-3)
    assert sections["steps"].data["every_iterate"][-1] == pytest.approx(lethe.certify(run, DELTA).epsilon)  # type: ignore[index, call-overload]
