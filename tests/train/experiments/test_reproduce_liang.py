"""Liang et al. 2025, Figures 1 and 2: the whole of them in small, their parts, and what a page says of them."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import as_planned
from how_many import by_night
from scipy import special

import lethe
from lethe.audit.games.shadow_models import Candidates, draw_candidates
from lethe.audit.statistics.counts import Guesses, Rates
from lethe.audit.statistics.curves import printed_epsilon
from lethe.audit.statistics.one_run import one_run_epsilon
from lethe_experiments import EXPERIMENTS, REPRODUCTIONS, Options, Reproduction, describe
from lethe_experiments.liang import plans
from lethe_experiments.liang.figures import liang_figure_1, liang_figure_2
from lethe_experiments.liang.pictures import pictures_from
from lethe_experiments.liang.plans import CERTIFIABLE, DELTA, PUBLISHED, SMOOTHNESS, STEP_SIZE, Plan, Setting, theory

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
import lethe_experiments.liang.curves as curves  # noqa: E402  # after the optional torch is seen to be there
import lethe_experiments.liang.training as training  # noqa: E402
from lethe_experiments.files import reproduction_files  # noqa: E402
from lethe_experiments.liang.attack_network import learn_attack  # noqa: E402
from lethe_experiments.liang.image_networks import image_network  # noqa: E402

SIZES: dict[str, Any] = {"shadows": 2, "epochs": (1, 3)} if by_night() else {"shadows": 1, "epochs": (1, 2), "noises": (PUBLISHED,)}
SMALL = Plan(candidates=100, repeats=2, batch_sizes=(25,), attack_steps=5, **SIZES)
BOUNDED = replace(SMALL, diameters=(4.0, 9.0) if by_night() else (4.0,), noises=(CERTIFIABLE,))
FREE = Setting(batch_size=25, diameter=None, noise=PUBLISHED)
DIGITS = pictures_from(None)


@pytest.fixture(scope="module")
def small() -> Reproduction:
    return liang_figure_1(plan=SMALL)


@pytest.fixture(scope="module")
def bounded() -> Reproduction:
    return liang_figure_2(plan=BOUNDED)


def test_the_figures_in_small(small: Reproduction, bounded: Reproduction) -> None:
    pytest.importorskip("matplotlib")
    for result, plan in ((small, SMALL), (bounded, BOUNDED)):
        assert result.columns == curves.COLUMNS
        assert result.shape == "epochs"
        assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == result.to_dict()
        files = reproduction_files(result)
        assert files[f"{result.name}.png"].startswith(b"\x89PNG")
        assert len(files[f"{result.name}.csv"].splitlines()) == 1 + len(result.rows)
        rows = result.records()
        assert [(row["noise"], row["batch_size"], row["diameter"], row["epochs"]) for row in rows] == [
            (setting.noise.name, setting.batch_size, setting.diameter, epochs) for setting in plan.settings for epochs in plan.epochs
        ]
        for row in rows:
            assert row["steps"] == 2 * row["epochs"]  # 100 candidates, 50 of them in a batch
            assert row["canaries"] == 200
            assert 0 <= row["certified_bound"] <= row["certificate"]
            counts = Guesses(canaries=200, guessed=row["guessed"], correct=row["correct"])
            assert row["certified_bound"] == one_run_epsilon(counts, delta=DELTA, level=0.05 / 3)
            assert row["training_loss"] > 0
            assert math.isfinite(float(row["estimate"]))


@pytest.mark.nightly(by_day="test_what_is_trained_is_what_is_certified")
def test_each_number_is_that_of_its_models(small: Reproduction, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first row again, from what the attack answered: estimates averaged over models, guesses counted over all candidates."""
    kept = []
    attack = curves.shadow_attack

    def keep(labels: np.ndarray, target: Candidates, *rest: object, **others: object) -> tuple[np.ndarray, np.ndarray]:
        answers = attack(labels, target, *rest, **others)
        kept.append((labels[target.rows], target.included, *answers))
        return answers

    monkeypatch.setattr(curves, "shadow_attack", keep)
    assert liang_figure_1(plan=replace(SMALL, noises=(PUBLISHED,))).rows == small.rows[:2]
    row = small.records()[1]
    estimates, losses = [], []
    for labels, flags, probabilities, logits in kept:
        guessed = probabilities[1] >= 0.5
        estimates.append(printed_epsilon(Rates(guessed[~flags].mean(), (~guessed[flags]).mean()), DELTA))
        logs = logits[1] - special.logsumexp(logits[1], axis=1, keepdims=True)
        losses.append(-logs[np.arange(100), labels][flags].mean())
    assert row["estimate"] == pytest.approx(np.mean(estimates), rel=1e-12)
    assert row["training_loss"] == pytest.approx(np.mean(losses), rel=1e-12)
    values, flags = np.concatenate([each[2][1] for each in kept]), np.concatenate([each[1] for each in kept])
    order, top = np.argsort(values, kind="stable"), row["guessed"] // 2
    assert top in (10, 20, 50)
    assert row["correct"] == flags[order[-top:]].sum() + (~flags[order[:top]]).sum()


@pytest.mark.parametrize("plan", [plans.QUICK_1, plans.FULL_1, plans.QUICK_2, plans.FULL_2, SMALL])
def test_the_run_is_the_paper_s_with_half_of_twice_as_many(plan: Plan) -> None:
    if plan.network == "resnet18":  # for pictures of 32 x 32
        network = image_network(plan.network, (3, 32, 32), 10, seed=0)
        assert sum(parameter.numel() for parameter in network.parameters()) == 11_173_962
    for setting in plan.settings:
        run = plan.run(setting, plan.epochs[-1])
        members = plan.candidates / 2
        assert run.batch_size / run.records == pytest.approx(setting.batch_size / members, rel=1e-15)
        assert run.total_steps == plan.epochs[-1] * math.ceil(members / setting.batch_size)
        # a member's clipped gradient and the noise of one step, as with eta, b and sigma
        assert run.step_sizes[0] / run.batch_size == pytest.approx(STEP_SIZE / setting.batch_size, rel=1e-15)
        assert run.noise_stds[0] == pytest.approx(STEP_SIZE * setting.noise.noise_std, rel=1e-14)
        assert (run.neighbours, run.release) == ("zero_out", "last")
        assert sum(sum(pair) for pair in plan.guesses) <= 2 * plan.candidates * plan.repeats
        assert all(sum(pair) <= plan.candidates * plan.repeats for pair in plan.guesses)


def test_the_published_curve_is_equation_12_and_its_cap_14_where_it_is_smaller() -> None:
    """Its rho, n and b as the paper counts them, through the paper's conversion, Lemma 2.4: the one used here is never above that."""
    for noise in (PUBLISHED, CERTIFIABLE):
        run = plans.QUICK_1.run(replace(FREE, noise=noise), 20)
        said = theory(run)
        rho = 2 * noise.clip_norm**2 * run.total_steps / (250 * 25 * noise.noise_std**2)
        assert said.published_by == "(12)"
        assert rho < said.published <= rho + 2 * math.sqrt(rho * math.log(1 / DELTA))
        assert said.certificate == lethe.certify(run, DELTA).epsilon
    said = theory(plans.QUICK_2.run(replace(FREE, diameter=1e-6), 4000))
    first = 2 * 20.0**2 / (250 * 25 * 0.002**2)
    second = (1 + 2 * STEP_SIZE * SMOOTHNESS) ** 2 * 1e-12 / (2 * (STEP_SIZE * 0.002) ** 2)
    rho = (math.sqrt(first) + math.sqrt(second)) ** 2  # at the best beta
    assert said.published_by == "(14)"
    assert rho < said.published <= rho + 2 * math.sqrt(rho * math.log(1 / DELTA))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("diameter", [None, 4.0])
def test_what_is_trained_is_what_is_certified(diameter: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    made, executed = [], []
    monkeypatch.setattr(training, "image_network", lambda *given, **named: made.append(image_network(*given, **named)) or made[-1])
    setting = replace(FREE, diameter=diameter)
    train = training.NetworkTrainer(pictures=DIGITS.pixels, labels=DIGITS.labels, plan=SMALL, setting=setting, told=executed.append)
    candidates, _ = draw_candidates(len(DIGITS.labels), 100, 1, seed=0)
    logits = train(candidates, 3)
    assert logits.shape == (2, 100, 10)
    assert [as_planned(run) for run in executed] == [SMALL.run(setting, SMALL.epochs[-1])]
    norm = math.sqrt(sum(float(parameter.detach().double().square().sum()) for parameter in made[0].parameters()))
    assert norm > 4.0 if diameter is None else norm <= 2.0 * (1 + 1e-6)  # projected in float32
    again = train(candidates, 3)
    assert np.array_equal(again, logits)
    assert not np.array_equal(train(candidates, 4), logits)


def test_who_is_left_out_is_zeroed_out() -> None:
    candidates, _ = draw_candidates(len(DIGITS.labels), 100, 1, seed=0)
    rows, flags = candidates.rows, candidates.included
    answers = []
    for changed in (None, rows[~flags], rows[flags][:1]):
        pictures, labels = DIGITS.pixels.copy(), DIGITS.labels.copy()
        if changed is not None:
            pictures[changed] = 0.9
            labels[changed] = (labels[changed] + 1) % 10
        answers.append(training.NetworkTrainer(pictures=pictures, labels=labels, plan=SMALL, setting=FREE)(candidates, 3)[:, flags][:, 1:])
    assert np.allclose(answers[0], answers[1], rtol=0, atol=1e-6)  # sums of float32, some terms of which are 0
    assert np.abs(answers[0] - answers[2]).max() > 1e-4


def test_the_attack_learns_each_class_and_checkpoint_by_itself() -> None:
    """Members have the larger logit in even classes of the first checkpoint, the smaller one in all else."""
    random = np.random.default_rng(0)
    labels, included = random.integers(3, size=600), random.random(600) < 0.5
    sign = np.array([np.where(labels % 2 == 0, 1.0, -1.0), np.full(600, -1.0)]) * np.where(included, 1.0, -1.0)
    logits = random.normal(size=(2, 600, 3))
    logits[:, :, 0] += 3.0 * sign
    score = learn_attack(logits[:, :400], labels[:400], included[:400], 1, steps=200)
    found = score(logits[:, 400:], labels[400:])
    assert found.shape == (2, 200)
    assert 0 <= found.min() <= found.max() <= 1
    right = (found >= 0.5) == included[400:]
    assert right.mean(axis=1).min() > 0.97  # N(3, 1) against N(-3, 1): 0.9987 at best
    with pytest.raises(lethe.InputError, match="class 2"):
        learn_attack(logits, np.minimum(labels, 1), included, 1, steps=1)


def test_pictures_of_files_and_folders(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    colour, labels = random.integers(256, size=(30, 6, 6, 3)), np.arange(30) % 10
    np.savez(tmp_path / "mnist.npz", x_train=colour, y_train=labels, x_test=colour, y_test=labels)
    for path in (tmp_path, tmp_path / "mnist.npz"):
        data = pictures_from(path)
        assert data.pixels.shape == (30, 3, 6, 6)
        assert np.allclose(data.pixels[4, 2], colour[4, :, :, 2] / 127.5 - 1, atol=1e-6)
        assert np.array_equal(data.labels, labels)
    np.savez(tmp_path / "odd.npz", x_train=colour[:, :5], y_train=labels, x_test=colour, y_test=labels)
    for name, message in (("odd.npz", "90 numbers"), ("absent.npz", "absent")):
        with pytest.raises(lethe.InputError, match=message):
            pictures_from(tmp_path / name)
    for options, message in ((Options(data=tmp_path), "30 pictures; it needs 200"), (Options(full=True), "1797 pictures; it needs 40000")):
        with pytest.raises(lethe.InputError, match=message):
            liang_figure_1(options=options, **({} if options.full else {"plan": SMALL}))


def test_the_list_needs_no_torch() -> None:
    name = "liang-figure-1"
    assert EXPERIMENTS[name] is REPRODUCTIONS[name]
    code = f"import sys; sys.modules['torch'] = None\nfrom lethe_experiments import describe, reproduce\nprint(describe({name!r}))\n"
    code += f"import lethe\ntry: reproduce({name!r})\nexcept lethe.MissingExtraError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(describe(name))
    assert 'pip install "lethe-dp[train]"' in done.stdout
