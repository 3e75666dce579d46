"""Loggers of private trainings: what they write is read back from TensorBoard's and MLflow's own files."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tensorboard")
pytest.importorskip("mlflow")

import mlflow
from doors import fit_linear
from networks import RECORDS, fit_network, make_network, make_network_run
from torch import Tensor

import lethe
from lethe.accounting.certify import stopped
from lethe.calculus.guarantees import ZCDP
from lethe.errors import CallbackWarning, InputError, MissingExtraError
from lethe.integrations.logging import MLflowLogger, TensorBoardLogger
from lethe.train import Callback, Checkpoints, Fitted

DELTA = 1e-5
RECOGNISABLE = 1234.5625  # of 32 bits, too
SETTINGS = {"records": 23.0, "release": "all", "neighbours": "replace_one", "noise_multiplier": 3.0, "seeded": False, "delta": DELTA}


def make_run(design: str = "cyclic", **changes: Any) -> lethe.Run:
    """10 steps with noise, of 5 records."""
    return make_network_run(design, **{"steps": 10, "noise_multiplier": 3.0, "neighbours": "replace_one"} | changes)


def fitted(run: lethe.Run, *callbacks: Any, **options: Any) -> Fitted[Any]:
    """The noise is fresh, since a seeded run has no epsilon."""
    return fit_network(run, callbacks=callbacks, **options)


def rounded_up(value: float) -> float:
    """The next number of 32 bits."""
    near = np.float32(value)
    return float(near if float(near) >= value else np.nextafter(near, np.float32(np.inf)))


class EventFiles:
    """A log in event files, and what TensorBoard's own reader finds there: (step, value) of each curve, texts, and hyperparameters."""

    exact = staticmethod(rounded_up)

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def logger(self, **options: Any) -> TensorBoardLogger:
        return TensorBoardLogger(self.folder, delta=DELTA, **{"log_every_n_steps": 1, "report": False, **options})

    def read(self, within: str = "") -> EventFiles:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.plugins.hparams import metadata

        found = EventAccumulator(str(self.folder / within), size_guidance={"scalars": 0, "tensors": 0})
        found.Reload()
        self.scalars = {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
        tags = [tag for tag in found.Tags()["tensors"] if tag.endswith("/text_summary")]
        said = {tag: found.Tensors(tag)[-1].tensor_proto.string_val[0].decode() for tag in tags}
        self.texts = {tag.removesuffix("/text_summary"): text for tag, text in said.items()}
        if not within:
            content = found.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
            hparams = metadata.parse_session_start_info_plugin_data(content).hparams
            self.settings = {name: getattr(value, value.WhichOneof("kind")) for name, value in hparams.items()}
        return self


class MLflowRun:
    """A log in an MLflow run, and what MLflow's client reads of it: (step, value) of each metric, tags, and parameters."""

    exact = staticmethod(float)

    def __init__(self, folder: Path) -> None:
        self.uri, self.run_id = folder.as_uri(), None

    def logger(self, **options: Any) -> MLflowLogger:
        self.last = MLflowLogger(delta=DELTA, **{"tracking_uri": self.uri, "log_every_n_steps": 1, "report": False, **options})
        return self.last

    def read(self) -> MLflowRun:
        client = mlflow.MlflowClient(tracking_uri=self.uri)
        self.run_id = self.last.run_id
        assert self.run_id is not None
        self.run = client.get_run(self.run_id)
        histories = {name: client.get_metric_history(self.run_id, name) for name in self.run.data.metrics}
        self.scalars = {name: [(metric.step, metric.value) for metric in history] for name, history in histories.items()}
        self.texts, self.settings = self.run.data.tags, self.run.data.params
        self.files = {path.name: path for path in Path(client.download_artifacts(self.run_id, "")).glob("lethe/*")}
        return self


@pytest.fixture
def events(tmp_path: Path) -> EventFiles:
    return EventFiles(tmp_path / "events")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MLflowRun:
    """MLflow's store in a folder; it needs no server and no database, and sends nothing."""
    for name, value in {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true", "GIT_PYTHON_REFRESH": "quiet"}.items():
        monkeypatch.setenv(name, value)
    return MLflowRun(tmp_path / "mlruns")


@pytest.fixture(params=["events", "store"])
def log(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("design", ["cyclic", "shuffled", "poisson"])
def test_epsilon_at_each_step_is_that_of_the_run_of_as_many_steps(log: Any, design: str) -> None:
    run = make_run(design, noise_multiplier=np.linspace(3.0, 4.0, 10).tolist())
    trained = fitted(run, log.logger())
    found = log.read().scalars
    proved = [lethe.certify(stopped(run, step), DELTA).epsilon for step in range(1, 11)]
    assert found["dp/epsilon"] == [(step, log.exact(epsilon)) for step, epsilon in enumerate(proved, start=1)]
    assert all(logged >= epsilon for (_, logged), epsilon in zip(found["dp/epsilon"], proved, strict=True)), "not even by a rounding less"
    last = lethe.certify(trained, DELTA).epsilon
    assert proved[-1] == last
    assert found["dp/certified_epsilon"] == [(10, log.exact(last))]
    assert [value for _, value in found["dp/noise_multiplier"]] == pytest.approx(run.noise_multipliers, rel=1e-7)
    assert [value for _, value in found["dp/noise_std"]] == pytest.approx(run.noise_stds, rel=1e-7)
    first = {name: found[f"dp/{name}"][0] for name in ("step_size", "nominal_batch_size", "clip_norm")}
    assert first == {"step_size": (1, 0.5), "nominal_batch_size": (1, 5.0), "clip_norm": (1, pytest.approx(0.4, rel=1e-7))}
    assert "every iterate released" in log.texts["dp/what_epsilon_is"]


def test_where_only_the_last_iterate_is_released_there_is_no_epsilon_on_the_way(log: Any) -> None:
    """Nor may anything of an iterate on the way be handed over."""
    run, logger, refused = make_run(release="last"), log.logger(), []

    class Evaluates(Callback):
        def on_step_end(self, step: Any) -> None:
            with pytest.raises(InputError, match="releases it"):
                logger.log_released("validation_loss", 0.5, basis="public_data")
            refused.append(step.step)

    with pytest.raises(InputError, match="no training has begun"):
        logger.log_released("validation_loss", 0.5, basis="public_data")
    fitted(run, logger, Evaluates())
    assert len(refused) == 10
    logger.log_released("validation_loss", 0.5, basis="public_data")
    found = log.read()
    assert "dp/epsilon" not in found.scalars
    assert found.scalars["dp/certified_epsilon"] == [(10, log.exact(lethe.certify(run, DELTA).epsilon))]
    assert found.scalars["released/validation_loss"] == [(10, 0.5)]
    assert "nothing has been released yet" in found.texts["dp/what_epsilon_is"]


def test_settings_certificate_and_report_are_written(log: Any) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    trained = fitted(make_run(), log.logger(report=True))
    found, certificate = log.read(), lethe.certify(trained, DELTA)
    said = {"planned_epsilon": certificate.epsilon, **SETTINGS}
    if isinstance(found, EventFiles):
        assert said.items() <= found.settings.items()
        assert found.texts["dp/certificate"] == str(certificate)
        assert "What must be believed" in found.texts["dp/report"]
        assert not found.texts["dp/report"].startswith("---")
        assert "steps: 10" in found.texts["dp/run"]
        return
    texts = {name: f"{value:.17g}" if isinstance(value, float) else str(value) for name, value in said.items()}
    assert texts.items() <= found.settings.items()
    written = lethe.Certificate.load(found.files["certificate.json"])
    assert written.epsilon == certificate.epsilon
    assert any(finding.evidence == "enforced" for finding in written.findings), "it is of the training, not of a typed run"
    assert lethe.Run.load(found.files["run.yaml"]) == written.run
    page = found.files["report.html"].read_text()
    assert "<html" in page
    assert written.run.run_id in page
    assert found.run.info.status == "FINISHED"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("release", ["all", "last"])
@pytest.mark.parametrize("private", [False, True])
@pytest.mark.filterwarnings("ignore:private. no record contributed")
def test_nothing_private_is_written_unless_asked_and_then_apart(events: EventFiles, release: str, private: bool) -> None:
    """Every record's loss is one number that is looked for in all bytes and values, and so is the real size of a batch."""

    def recognisable(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.sum(dim=1) * 0.0 + RECOGNISABLE

    run = make_run("poisson" if release == "all" else "cyclic", release=release, steps=6)
    fit_network(run, loss=recognisable, callbacks=events.logger(private=private))
    public = events.read()
    written = b"".join(path.read_bytes() for path in events.folder.glob("events*"))
    for value in (np.float32(RECOGNISABLE).tobytes(), np.float64(RECOGNISABLE).tobytes(), b"1234.5"):
        assert value not in written
    assert not any(value == RECOGNISABLE for values in public.scalars.values() for _, value in values)
    assert not any("private" in tag for tag in (*public.scalars, *public.texts))
    names = ("noise_multiplier", "noise_std", "step_size", "clip_norm", "nominal_batch_size", "epsilon", "certified_epsilon")
    assert set(public.scalars) <= {f"dp/{name}" for name in names}
    assert (events.folder / "private").exists() == private
    if not private:
        return
    apart = events.read("private")
    assert all(tag.startswith("private/") for tag in (*apart.scalars, *apart.texts))
    assert "no certificate" in apart.texts["private/note"]
    assert len(apart.scalars["private/records_in_batch"]) == 6
    if release == "last":  # not even then: it is of iterates that must not leave the training
        assert "private/training_loss" not in apart.scalars
        assert "training loss is not logged" in apart.texts["private/note"]
    else:
        drawn = [step for step, records in apart.scalars["private/records_in_batch"] if records]
        assert apart.scalars["private/training_loss"] == [(step, RECOGNISABLE) for step in drawn]


@pytest.mark.filterwarnings("ignore:private. no record contributed")
def test_what_is_private_is_marked_in_mlflow(store: MLflowRun) -> None:
    fitted(make_run("poisson", steps=4), store.logger(private=True))
    found = store.read()
    named = {name for name in (*found.scalars, *found.texts, *found.settings) if "private" in name}
    assert named == {f"private/{name}" for name in ("note", "training_loss", "records_in_batch", "projected", "contributed")}
    assert "no certificate" in found.texts["private/note"]


def test_a_released_loss_and_a_seeded_run_without_an_epsilon(log: Any) -> None:
    logger = log.logger()

    class Evaluates(Callback):
        def on_step_end(self, step: Any) -> None:
            logger.log_released("validation_loss", math.nan if step.step == 3 else 1.0 / step.step, basis="public_data")

    fitted(make_run(), logger, Evaluates(), seed=1)
    logger.log_released("audit/answers", 0.25, basis="paid")
    with pytest.raises(InputError, match="basis"):
        logger.log_released("loss", 1.0, basis="training_data")  # pyright: ignore[reportArgumentType]
    found = log.read()
    values = found.scalars["released/validation_loss"]
    assert [step for step, _ in values] == list(range(1, 11))
    assert math.isnan(values[2][1])
    assert values[3] == (4, 0.25)
    assert found.scalars["released/audit/answers"] == [(10, 0.25)]
    assert "another certificate" in found.texts["released/audit/answers/basis"]
    assert {value for _, value in found.scalars["dp/epsilon"]} == {math.inf}
    assert found.scalars["dp/certified_epsilon"] == [(10, math.inf)]
    assert "epsilon is infinite" in found.texts["dp/what_epsilon_is"]


def test_a_budget_is_logged_whole_from_the_first_step_on(events: EventFiles) -> None:
    """Where such a training stops may depend on what was released, so less than the budget would be too little."""
    loss, random = lethe.losses.Logistic(feature_norm=1.0), np.random.default_rng(1)
    run = make_run(loss=loss, clip_norm=1.0, noise_multiplier=None, noise_budget=0.5, steps=20)
    data, every = (random.normal(size=(RECORDS, 3)), random.integers(2, size=RECORDS)), events.logger(log_every_n_steps=3)
    trained = fit_linear(run, *data, noise_policy=lambda seen: 3.0 + seen.step / 100, callbacks=every)
    found = events.read().scalars
    proved, steps = lethe.certify(trained.run, DELTA).epsilon, trained.run.total_steps
    assert proved >= ZCDP(0.5).epsilon(DELTA)
    assert steps < 20
    assert found["dp/epsilon"] == [(step, rounded_up(proved)) for step in sorted({1, *range(3, steps + 1, 3), steps})]
    assert found["dp/certified_epsilon"] == [(steps, rounded_up(proved))]
    assert found["dp/budget_spent"][-1] == (steps, rounded_up(trained.spent))


def test_a_resumed_training_goes_on_at_its_step_and_takes_back_what_was_lost(log: Any, tmp_path: Path) -> None:
    """Killed after step 6, with a checkpoint of step 4: steps 5 and 6 are taken again, and stand in event files once."""
    run, checkpoints = make_run(release="last"), Checkpoints(folder=tmp_path / "kept", every=4)

    class Kills(Callback):
        def on_step_end(self, step: Any) -> None:
            if step.step == 6:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(run, log.logger(), Kills(), checkpoints=checkpoints)
    found: Any = log.read()
    assert [step for step, _ in found.scalars["dp/step_size"]] == [1, 2, 3, 4, 5, 6]
    assert "KeyboardInterrupt" in found.texts["dp/failed"]
    assert isinstance(log, EventFiles) or found.run.info.status == "FAILED"
    fitted(run, log.logger(**({} if isinstance(log, EventFiles) else {"run_id": found.run_id})), checkpoints=checkpoints)
    found = log.read()
    again = [] if isinstance(log, EventFiles) else [5, 6]
    assert sorted(step for step, _ in found.scalars["dp/step_size"]) == sorted([*range(1, 11), *again])
    assert found.scalars["dp/certified_epsilon"] == [(10, log.exact(lethe.certify(run, DELTA).epsilon))]
    assert isinstance(log, EventFiles) or found.run.info.status == "FINISHED"


def test_mlflow_logs_to_the_run_that_is_active_and_leaves_it_open(store: MLflowRun) -> None:
    with pytest.raises(InputError, match="run_id, run_name"):
        store.logger(run_id="a", run_name="b")
    mlflow.set_tracking_uri(store.uri)
    try:
        logger = store.logger(tracking_uri=None)
        with mlflow.start_run() as active:
            fitted(make_run(), logger)
            assert logger.run_id == active.info.run_id
            assert store.read().run.info.status == "RUNNING"
        assert store.read().run.info.status == "FINISHED"
    finally:
        mlflow.set_tracking_uri(None)


def test_a_log_that_cannot_be_written_ends_before_training_and_never_within(events: EventFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    events.folder.write_text("no folder")
    model = make_network()
    with pytest.raises(OSError, match="events"):
        fitted(make_run(), events.logger(), model=model)
    assert all(bool((one == start).all()) for one, start in zip(model.parameters(), make_network().parameters(), strict=True))
    events.folder.unlink()
    logger = events.logger()
    monkeypatch.setattr(logger, "_scalars", lambda *given, **options: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.warns(CallbackWarning, match="TensorBoardLogger failed at step 1.*no space left"):
        assert fitted(make_run(), logger).run == make_run()


def test_a_failed_training_says_so_without_its_words(events: EventFiles) -> None:
    def secret(outputs: Tensor, targets: Tensor) -> Tensor:
        raise ValueError("record 17 has 4.25")

    with pytest.raises(ValueError, match="17"):
        fitted(make_run(), events.logger(), loss=secret)
    assert "ValueError" in events.read().texts["dp/failed"]
    assert b"17 has" not in b"".join(path.read_bytes() for path in events.folder.glob("events*"))


REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({"delta": delta}, "delta") for delta in (0.0, 0.5, math.nan)),
    *(({"log_every_n_steps": steps}, "log_every_n_steps") for steps in (0, -1, True, 1.5, float("nan"), "5")),
]


@pytest.mark.parametrize(("options", "words"), REFUSED)
def test_options_are_refused_before_anything_is_written(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        fitted(make_run(), TensorBoardLogger(tmp_path, **{"delta": DELTA, "report": False, **options}))
    assert not list(tmp_path.iterdir())


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for package, make in (("mlflow", lambda: MLflowLogger(delta=DELTA)), ("tensorboard", lambda: TensorBoardLogger("x", delta=DELTA))):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MissingExtraError, match=r'pip install "lethe-dp\[logging\]"'):
            make()
