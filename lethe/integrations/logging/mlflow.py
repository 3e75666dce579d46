"""MLflowLogger: the log of a private training as an MLflow run, with certificate and report as its artefacts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from lethe.errors import InputError, MissingExtraError
from lethe.integrations.logging.description import Setting
from lethe.integrations.logging.run_logger import RunLogger
from lethe.run.run import Run

_ARTEFACTS = "lethe"


class MLflowLogger(RunLogger):
    """Writes what `RunLogger` logs to an MLflow run: settings as parameters, curves as metrics, notes as tags, and the artefacts
    `lethe/run.yaml`, `lethe/certificate.json`, `lethe/report.html`.

    It logs to the run `run_id`; else to the run that is active (`with mlflow.start_run():`), where no tracking_uri is given; else to a new
    one, which it ends with the training. What is private is in metrics `private/...`, and the run's tag `private/note` says what they are:
    a server that others see is no place for them.

    Args:
        delta, log_every_n_steps, private, report, allow_large_delta: see `RunLogger`.
        tracking_uri: of the server or the store; None: MLflow's own choice.
        experiment_name: of a new run; it is made if it does not exist.
        run_name: of a new run; None: MLflow makes one.
        run_id: of a run to go on with.
    Raises:
        InputError: an argument cannot be used, or both run_id and run_name are given.
        MissingExtraError: mlflow is not installed, or what the report needs.
    """

    def __init__(
        self,
        *,
        delta: float,
        tracking_uri: str | None = None,
        experiment_name: str = "lethe",
        run_name: str | None = None,
        run_id: str | None = None,
        log_every_n_steps: int | None = None,
        private: bool = False,
        report: bool = True,
        allow_large_delta: bool = False,
    ) -> None:
        if find_spec("mlflow") is None:
            raise MissingExtraError("MLflowLogger: mlflow is not installed.", remedy='pip install "lethe-dp[logging]"')
        if run_id is not None and run_name is not None:
            raise InputError("run_id, run_name: got both; a run that exists has its name.", remedy="leave one of them out.")
        super().__init__(
            delta=delta, log_every_n_steps=log_every_n_steps, private=private, report=report, allow_large_delta=allow_large_delta
        )
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
        client.log_batch(self._run_id, params=[mlflow.entities.Param(name, _said(value)) for name, value in settings.items()])

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name(self._experiment_name)
        return self._client.create_experiment(self._experiment_name) if found is None else found.experiment_id

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


def _said(value: Setting) -> str:
    return f"{value:.17g}" if isinstance(value, float) else str(value)
