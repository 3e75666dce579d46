"""Trainings that are logged, and what is read back from TensorBoard's and MLflow's own files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from doors import arguments
from torch import Tensor, nn

import lethe
from lethe.train import Fitted, PrivacyEngine, fit

RECORDS = 40
CROSS_ENTROPY = nn.CrossEntropyLoss(reduction="none")
Values = dict[str, list[tuple[int, float]]]


def make_run(design: str = "cyclic", *, release: str = "all", **changes: Any) -> lethe.Run:
    """40 records in batches of 8, 10 steps."""
    fields: dict[str, Any] = {"steps": 10, "step_size": 0.5, "clip_norm": 0.4, "noise_multiplier": 3.0}
    fields |= {"neighbours": "replace_one"} | changes
    return lethe.Run(records=RECORDS, batches={"design": design, "size": 8}, release=release, **fields)


def make_data() -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(0)
    return torch.tensor(random.normal(size=(RECORDS, 4))), torch.tensor(random.integers(3, size=RECORDS))


def make_model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(4, 3, dtype=torch.float64)


def fitted(run: lethe.Run, *callbacks: Any, **options: Any) -> Fitted[Any]:
    """By `fit`; the noise is fresh, since a seeded run has no epsilon."""
    return fit(make_model(), CROSS_ENTROPY, make_data(), run, callbacks=callbacks, **arguments(options))


def looped(run: lethe.Run, *callbacks: Any, **options: Any) -> PrivacyEngine:
    """In a loop of one's own."""
    model = make_model()
    sgd = torch.optim.SGD(model.parameters(), lr=0.5)

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        return CROSS_ENTROPY(model(batch[0]), batch[1])

    engine = PrivacyEngine(model, sgd, losses, make_data(), run, callbacks=callbacks, **arguments(options))
    optimizer, loader = sgd, engine.batches()
    for batch in loader:
        engine.backward(batch)
        optimizer.step()
        optimizer.zero_grad()
    engine.record()
    return engine


class EventFiles:
    """What TensorBoard's own reader finds in a folder."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        self._read = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
        self._read.Reload()

    @property
    def scalars(self) -> Values:
        """(step, value) of each tag."""
        return {tag: [(event.step, event.value) for event in self._read.Scalars(tag)] for tag in self._read.Tags()["scalars"]}

    @property
    def texts(self) -> dict[str, str]:
        """The last text of each tag."""
        tags = [tag for tag in self._read.Tags()["tensors"] if tag.endswith("/text_summary")]
        return {tag.removesuffix("/text_summary"): self._read.Tensors(tag)[-1].tensor_proto.string_val[0].decode() for tag in tags}

    @property
    def settings(self) -> dict[str, Any]:
        """The hyperparameters of the session, as the plugin reads them."""
        from tensorboard.plugins.hparams import metadata

        content = self._read.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
        hparams = metadata.parse_session_start_info_plugin_data(content).hparams
        return {name: getattr(value, value.WhichOneof("kind")) for name, value in hparams.items()}


@contextmanager
def file_store(patch: Any, folder: Path) -> Iterator[str]:
    """MLflow's store in a folder; it needs no server and no database, and sends nothing."""
    patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    patch.setenv("GIT_PYTHON_REFRESH", "quiet")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, message=".*filesystem tracking backend.*")
        yield folder.as_uri()


class Logged:
    """What MLflow's client reads of a run."""

    def __init__(self, uri: str, run_id: str) -> None:
        import mlflow

        self._client, self.run_id = mlflow.MlflowClient(tracking_uri=uri), run_id
        self.run = self._client.get_run(run_id)

    @property
    def scalars(self) -> Values:
        """(step, value) of each metric."""
        return {
            name: [(metric.step, metric.value) for metric in self._client.get_metric_history(self.run_id, name)]
            for name in self.run.data.metrics
        }

    def artefacts(self) -> dict[str, Path]:
        """The files of the run, by name."""
        folder = Path(self._client.download_artifacts(self.run_id, "lethe"))
        return {path.name: path for path in folder.iterdir()}
