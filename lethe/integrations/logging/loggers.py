"""TensorBoardLogger and MLflowLogger: callbacks that write the log of a private training to these tools. Users pass one to `fit` or
`PrivacyEngine`; `RunLogger`, the base class, decides what is logged and when.
"""

import math
import os
import time
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lethe.documents.strict import as_path
from lethe.errors import InputError, MissingExtraError
from lethe.integrations.logging.run_logger import RunLogger, Setting
from lethe.run.run import Run

_CERTIFIED = ("dp/epsilon", "dp/certified_epsilon", "dp/budget_spent")
_ARTEFACTS = "lethe"


class TensorBoardLogger(RunLogger):
    """Writes what `RunLogger` logs for TensorBoard: `tensorboard --logdir FOLDER` shows it.

    Curves are scalars; the run's settings are hyperparameters; the certificate and the report (as Markdown) are texts. What is private goes
    to event files of its own, in the folder `private` below: leave it out when you pass the log on. Event files hold numbers of 32 bits;
    epsilons are rounded up to these. A training that goes on from a checkpoint takes what was logged after that checkpoint back.

    Args:
        folder: of the event files; one for each training.
        options: delta, log_every_n_steps, private, report, allow_large_delta, of `RunLogger`.
    Raises:
        InputError: an argument cannot be used.
        MissingExtraError: tensorboard is not installed, or what the report needs.
    """

    _format = ".md"

    def __init__(
        self,
        folder: str | os.PathLike[str],
        **options: Any,
    ) -> None:
        if find_spec("tensorboard") is None:
            raise MissingExtraError("TensorBoardLogger: tensorboard is not installed.", remedy='pip install "lethe-dp[logging]"')
        super().__init__(**options)
        self._folder = as_path(folder)
        self._writers: dict[bool, Any] = {}
        self._resumed, self._end = 0, None

    def _open(self, run: Run, settings: Mapping[str, Setting], steps_done: int) -> None:
        self._shut()
        self._resumed = steps_done
        # What shows settings as hyperparameters: of an experiment, at the begin of a session, and at its end.
        experiment, begin, self._end = import_module("torch.utils.tensorboard.summary").hparams(dict(settings), {})
        for summary in (experiment, begin):
            self._writer(private=False).file_writer.add_summary(summary)

    def _scalars(self, values: Mapping[str, float], step: int, *, private: bool) -> None:
        writer = self._writer(private)
        for name, value in values.items():
            writer.add_scalar(name, _upwards(value) if name in _CERTIFIED else value, step)
        writer.flush()  # a training that is killed has its log

    def _text(self, name: str, text: str, *, private: bool) -> None:
        writer = self._writer(private)
        writer.add_text(name, text, self._step)
        writer.flush()

    def _documents(self, files: Mapping[str, Path]) -> None:
        for name, path in files.items():
            if path.suffix == ".md":  # without the metadata of a model card, between dashes on top
                self._text(f"dp/{path.stem}", path.read_text().partition("---\n")[2].partition("---\n")[2], private=False)
            elif name == "run":
                self._text("dp/run", f"```yaml\n{path.read_text()}```", private=False)

    def _close(self, status: Literal["FINISHED", "FAILED"]) -> None:
        if status == "FINISHED":
            self._writer(private=False).file_writer.add_summary(self._end)
        self._shut()

    def _writer(self, private: bool) -> Any:
        if private not in self._writers:
            resumed = self._resumed + 1 if self._resumed and self._last is None else None  # what is there of later steps was lost
            folder = self._folder / "private" if private else self._folder
            self._writers[private] = import_module("torch.utils.tensorboard").SummaryWriter(str(folder), purge_step=resumed)
        return self._writers[private]

    def _shut(self) -> None:
        writers, self._writers = self._writers, {}
        for writer in writers.values():
            writer.close()


class MLflowLogger(RunLogger):
    """Writes what `RunLogger` logs to an MLflow run: settings as parameters, curves as metrics, notes as tags, and the artefacts
    `lethe/run.yaml`, `lethe/certificate.json`, `lethe/report.html`.

    It logs to the run `run_id`; else to the run that is active (`with mlflow.start_run():`), where no tracking_uri is given; else to a new
    one, which it ends with the training. What is private is in metrics `private/...`, and the run's tag `private/note` says what they are:
    a server that others see is no place for them.

    Args:
        tracking_uri: of the server or the store; None: MLflow's own choice.
        experiment_name: of a new run; it is made if it does not exist.
        run_name: of a new run; None: MLflow makes one.
        run_id: of a run to go on with.
        options: delta, log_every_n_steps, private, report, allow_large_delta, of `RunLogger`.
    Raises:
        InputError: an argument cannot be used, or both run_id and run_name are given.
        MissingExtraError: mlflow is not installed, or what the report needs.
    """

    def __init__(
        self,
        *,
        tracking_uri: str | None = None,
        experiment_name: str = "lethe",
        run_name: str | None = None,
        run_id: str | None = None,
        **options: Any,
    ) -> None:
        if find_spec("mlflow") is None:
            raise MissingExtraError("MLflowLogger: mlflow is not installed.", remedy='pip install "lethe-dp[logging]"')
        if run_id is not None and run_name is not None:
            raise InputError("run_id, run_name: got both; a run that exists has its name.", remedy="leave one of them out.")
        super().__init__(**options)
        self._tracking_uri, self._experiment_name, self._run_name = tracking_uri, experiment_name, run_name
        self._run_id, self._given_id = run_id, run_id
        self._client: Any = None
        self._own = False

    @property
    def run_id(self) -> str | None:
        """Of the MLflow run that was last logged to; None before training."""
        return self._run_id

    def _open(self, run: Run, settings: Mapping[str, Setting], steps_done: int) -> None:
        mlflow: Any = import_module("mlflow")
        self._client = client = mlflow.MlflowClient(tracking_uri=self._tracking_uri)
        active = mlflow.active_run() if self._tracking_uri is None else None
        self._own = self._given_id is None and active is None
        if self._given_id is not None:
            self._run_id = self._given_id
            client.update_run(self._run_id, status="RUNNING")
        elif active is not None:
            self._run_id = active.info.run_id
        else:
            self._run_id = client.create_run(self._experiment(), run_name=self._run_name).info.run_id
        client.log_batch(self._run_id, params=[mlflow.entities.Param(name, _text(value)) for name, value in settings.items()])

    def _experiment(self) -> str:
        experiment = self._client.get_experiment_by_name(self._experiment_name)
        return self._client.create_experiment(self._experiment_name) if experiment is None else experiment.experiment_id

    def _scalars(self, values: Mapping[str, float], step: int, *, private: bool) -> None:
        metric, now = import_module("mlflow.entities").Metric, int(time.time() * 1000)
        self._client.log_batch(self._run_id, metrics=[metric(name, value, now, step) for name, value in values.items()])

    def _text(self, name: str, text: str, *, private: bool) -> None:
        self._client.set_tag(self._run_id, name, text)

    def _documents(self, files: Mapping[str, Path]) -> None:
        for path in files.values():
            self._client.log_artifact(self._run_id, str(path), _ARTEFACTS)

    def _close(self, status: Literal["FINISHED", "FAILED"]) -> None:
        if self._own or self._given_id is not None:
            self._client.set_terminated(self._run_id, status=status)


def _text(value: Setting) -> str:
    return f"{value:.17g}" if isinstance(value, float) else str(value)


def _upwards(value: float) -> float:
    """The smallest number of 32 bits that is not below `value`; what is no number is infinity."""
    if math.isnan(value):
        return math.inf
    with np.errstate(over="ignore"):
        rounded = np.float32(value)
    return float(rounded if float(rounded) >= value else np.nextafter(rounded, np.float32(math.inf)))
