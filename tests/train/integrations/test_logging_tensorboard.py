"""TensorBoard's event files of private trainings, read back by TensorBoard."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tensorboard")

from doors import fit_linear
from logged_runs import CROSS_ENTROPY, EventFiles, fitted, looped, make_data, make_model, make_run
from torch import Tensor

import lethe
from lethe.accounting.certify import stopped
from lethe.calculus.guarantees import ZCDP
from lethe.errors import CallbackWarning, InputError
from lethe.integrations.logging import TensorBoardLogger
from lethe.train import Callback, Checkpoints, fit

DELTA = 1e-5
RECOGNISABLE = 1234.5625  # of 32 bits, too


def logger(folder: Path, **options: Any) -> TensorBoardLogger:
    return TensorBoardLogger(folder, delta=DELTA, **{"log_every_n_steps": 1, "report": False, **options})


def rounded_up(value: float) -> float:
    """The next number of 32 bits."""
    near = np.float32(value)
    return float(near if float(near) >= value else np.nextafter(near, np.float32(np.inf)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("train", [fitted, looped])
@pytest.mark.parametrize("design", ["cyclic", "shuffled", "poisson"])
def test_epsilon_at_each_step_is_that_of_the_run_of_as_many_steps(tmp_path: Path, train: Callable[..., Any], design: str) -> None:
    run = make_run(design, noise_multiplier=np.linspace(3.0, 4.0, 10).tolist())
    trained = train(run, logger(tmp_path))
    recorded = trained.run if train is fitted else trained.recorded_run()
    found = EventFiles(tmp_path).scalars
    proved = [lethe.certify(stopped(run, step), DELTA).epsilon for step in range(1, 11)]
    assert found["dp/epsilon"] == [(step, rounded_up(epsilon)) for step, epsilon in enumerate(proved, start=1)]
    assert all(logged >= epsilon for (_, logged), epsilon in zip(found["dp/epsilon"], proved, strict=True)), "not even by a rounding less"
    last = lethe.certify(recorded, DELTA).epsilon
    assert proved[-1] == last
    assert found["dp/certified_epsilon"] == [(10, rounded_up(last))]
    assert [value for _, value in found["dp/noise_multiplier"]] == pytest.approx(run.noise_multipliers, rel=1e-7)
    assert [value for _, value in found["dp/noise_std"]] == pytest.approx(run.noise_stds, rel=1e-7)
    assert {name: found[name][0] for name in ("dp/step_size", "dp/nominal_batch_size")} == {
        "dp/step_size": (1, 0.5),
        "dp/nominal_batch_size": (1, 8.0),
    }
    assert found["dp/clip_norm"][0][1] == pytest.approx(0.4, rel=1e-7)


def test_where_only_the_last_iterate_is_released_there_is_no_epsilon_on_the_way(tmp_path: Path) -> None:
    run = make_run(release="last")
    fitted(run, logger(tmp_path))
    found = EventFiles(tmp_path)
    assert "dp/epsilon" not in found.scalars
    assert found.scalars["dp/certified_epsilon"] == [(10, rounded_up(lethe.certify(run, DELTA).epsilon))]
    assert "nothing has been released yet" in found.texts["dp/what_epsilon_is"]


def test_texts_and_hyperparameters(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    run = make_run("cyclic")
    trained = fitted(run, logger(tmp_path, report=True))
    found = EventFiles(tmp_path)
    certificate = lethe.certify(trained, DELTA)
    assert found.texts["dp/certificate"] == str(certificate)
    assert "What must be believed" in found.texts["dp/report"]
    assert not found.texts["dp/report"].startswith("---")
    assert f"steps: {run.total_steps}" in found.texts["dp/run"]
    expected = {
        "records": 40.0,
        "batches": "cyclic",
        "steps": 10.0,
        "release": "all",
        "neighbours": "replace_one",
        "noise_multiplier": 3.0,
        "seeded": False,
    }
    assert expected.items() <= found.settings.items()
    assert found.settings["planned_epsilon"] == certificate.epsilon


@pytest.mark.sampled(2)
@pytest.mark.parametrize("release", ["all", "last"])
@pytest.mark.parametrize("private", [False, True])
@pytest.mark.filterwarnings("ignore:private. no record contributed")
def test_nothing_private_is_written_unless_asked_and_then_apart(tmp_path: Path, release: str, private: bool) -> None:
    """Every record's loss is one number that is looked for in all bytes and values, and so is the real size of a batch."""

    def recognisable(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.sum(dim=1) * 0.0 + RECOGNISABLE

    run = make_run("poisson" if release == "all" else "cyclic", release=release, steps=6)
    fit(make_model(), recognisable, make_data(), run, callbacks=logger(tmp_path, private=private))
    public = EventFiles(tmp_path)
    written = b"".join(path.read_bytes() for path in tmp_path.glob("events*"))
    for value in (np.float32(RECOGNISABLE), np.float64(RECOGNISABLE)):
        assert value.tobytes() not in written
    assert b"1234.5" not in written
    assert not any(value == RECOGNISABLE for values in public.scalars.values() for _, value in values)
    assert not any("private" in tag for tag in (*public.scalars, *public.texts))
    assert set(public.scalars) <= {f"dp/{name}" for name in ("noise_multiplier", "noise_std", "step_size", "clip_norm")} | {
        "dp/nominal_batch_size",
        "dp/epsilon",
        "dp/certified_epsilon",
    }
    assert (tmp_path / "private").exists() == private
    if not private:
        return
    apart = EventFiles(tmp_path / "private")
    assert all(tag.startswith("private/") for tag in (*apart.scalars, *apart.texts))
    assert "no certificate" in apart.texts["private/note"]
    assert len(apart.scalars["private/records_in_batch"]) == 6
    if release == "last":  # not even then: it is of iterates that must not leave the training
        assert "private/training_loss" not in apart.scalars
        assert "training loss is not logged" in apart.texts["private/note"]
    else:
        drawn = [step for step, records in apart.scalars["private/records_in_batch"] if records]
        assert apart.scalars["private/training_loss"] == [(step, RECOGNISABLE) for step in drawn]


def test_a_released_loss(tmp_path: Path) -> None:
    run, log = make_run(), logger(tmp_path)

    class Evaluates(Callback):
        def on_step_end(self, step: Any) -> None:
            log.log_released("validation_loss", math.nan if step.step == 3 else 1.0 / step.step, basis="public_data")

    fitted(run, log, Evaluates())
    log.log_released("audit/answers", 0.25, basis="paid")
    with pytest.raises(InputError, match="basis"):
        log.log_released("loss", 1.0, basis="training_data")  # pyright: ignore[reportArgumentType]
    found = EventFiles(tmp_path)
    values = found.scalars["released/validation_loss"]
    assert [step for step, _ in values] == list(range(1, 11))
    assert math.isnan(values[2][1])
    assert values[3] == (4, 0.25)
    assert found.scalars["released/audit/answers"] == [(10, 0.25)]
    assert "another certificate" in found.texts["released/audit/answers/basis"]


def test_nothing_of_an_iterate_on_the_way_may_be_handed_over_where_only_the_last_is_released(tmp_path: Path) -> None:
    run, log = make_run(release="last"), logger(tmp_path)
    refused: list[str] = []

    class Evaluates(Callback):
        def on_step_end(self, step: Any) -> None:
            try:
                log.log_released("validation_loss", 0.5, basis="public_data")
            except InputError as error:
                refused.append(str(error))

    with pytest.raises(InputError, match="no training has begun"):
        log.log_released("validation_loss", 0.5, basis="public_data")
    fitted(run, log, Evaluates())
    assert len(refused) == 10
    assert all("releases it" in words for words in refused)
    log.log_released("validation_loss", 0.5, basis="public_data")
    assert EventFiles(tmp_path).scalars["released/validation_loss"] == [(10, 0.5)]


def test_a_seeded_run_has_no_epsilon(tmp_path: Path) -> None:
    fitted(make_run(), logger(tmp_path, log_every_n_steps=None), seed=3)
    found = EventFiles(tmp_path)
    assert {value for _, value in found.scalars["dp/epsilon"]} == {math.inf}
    assert found.scalars["dp/certified_epsilon"] == [(10, math.inf)]
    assert "epsilon is infinite" in found.texts["dp/what_epsilon_is"]


def linear_data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    return random.normal(size=(40, 3)), random.integers(2, size=40)


def test_a_budget_is_logged_whole_from_the_first_step_on(tmp_path: Path) -> None:
    """Where such a training stops may depend on what was released, so less than the budget would be too little."""
    loss = lethe.losses.Logistic(feature_norm=1.0)
    run = make_run(loss=loss, clip_norm=1.0, noise_multiplier=None, noise_budget=0.5, steps=20)
    trained = fit_linear(
        run, *linear_data(), noise_policy=lambda seen: 3.0 + seen.step / 100, callbacks=logger(tmp_path, log_every_n_steps=3)
    )
    found = EventFiles(tmp_path).scalars
    least = ZCDP(0.5).epsilon(DELTA)
    proved = lethe.certify(trained.run, DELTA).epsilon
    assert proved >= least
    steps = trained.run.total_steps
    assert steps < 20
    assert found["dp/epsilon"] == [(step, rounded_up(proved)) for step in sorted({1, *range(3, steps + 1, 3), steps})]
    assert found["dp/certified_epsilon"] == [(steps, rounded_up(proved))]
    assert found["dp/budget_spent"][-1] == (steps, rounded_up(trained.spent))


def test_a_resumed_training_goes_on_at_its_step_and_takes_back_what_was_lost(tmp_path: Path) -> None:
    """Killed after step 6, with a checkpoint of step 4: steps 5 and 6 are taken again, and stand in the log once."""
    run = make_run(release="last")

    class Kills(Callback):
        def on_step_end(self, step: Any) -> None:
            if step.step == 6:
                raise KeyboardInterrupt

    checkpoints = Checkpoints(folder=tmp_path / "kept", every=4)
    with pytest.raises(KeyboardInterrupt):
        fitted(run, logger(tmp_path / "log"), Kills(), checkpoints=checkpoints)
    assert [step for step, _ in EventFiles(tmp_path / "log").scalars["dp/step_size"]] == [1, 2, 3, 4, 5, 6]
    fitted(run, logger(tmp_path / "log"), checkpoints=checkpoints)
    found = EventFiles(tmp_path / "log")
    assert [step for step, _ in found.scalars["dp/step_size"]] == list(range(1, 11))
    assert found.scalars["dp/certified_epsilon"] == [(10, rounded_up(lethe.certify(run, DELTA).epsilon))]


def test_a_log_that_cannot_be_written_ends_before_training_and_never_within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    model = make_model()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(OSError, match="file"):
        fit(model, CROSS_ENTROPY, make_data(), make_run(), callbacks=logger(tmp_path / "file"))
    assert all(bool((parameter == start).all()) for parameter, start in zip(model.parameters(), before, strict=True))
    log = logger(tmp_path / "log")
    monkeypatch.setattr(log, "_scalars", lambda *given, **options: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.warns(CallbackWarning, match="TensorBoardLogger failed at step 1.*no space left"):
        trained = fitted(make_run(), log)
    assert trained.run == make_run()


def test_a_failed_training_says_so_without_its_words(tmp_path: Path) -> None:
    def secret(outputs: Tensor, targets: Tensor) -> Tensor:
        raise ValueError("record 17 has 4.25")

    with pytest.raises(ValueError, match="17"):
        fit(make_model(), secret, make_data(), make_run(), callbacks=logger(tmp_path))
    assert "ValueError" in EventFiles(tmp_path).texts["dp/failed"]
    assert b"17 has" not in b"".join(path.read_bytes() for path in tmp_path.glob("events*"))


@pytest.mark.parametrize("delta", [0.0, 0.5, math.nan])
def test_a_delta_that_promises_nothing_is_refused_before_training(tmp_path: Path, delta: float) -> None:
    with pytest.raises(InputError, match="delta"):
        fitted(make_run(), TensorBoardLogger(tmp_path, delta=delta, report=False))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("steps", [0, -1, True, 1.5, float("nan"), "5"])
def test_a_rhythm_that_is_none_is_refused(tmp_path: Path, steps: Any) -> None:
    with pytest.raises(InputError):
        logger(tmp_path, log_every_n_steps=steps)
