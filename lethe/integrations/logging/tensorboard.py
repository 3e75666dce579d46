"""TensorBoardLogger: the log of a private training as TensorBoard's event files."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lethe.documents.strict import as_path
from lethe.errors import MissingExtraError
from lethe.integrations.logging import event_summaries
from lethe.integrations.logging.description import Setting
from lethe.integrations.logging.event_summaries import tensorboard_module
from lethe.integrations.logging.run_logger import RunLogger
from lethe.run.run import Run

_CERTIFIED = ("dp/epsilon", "dp/certified_epsilon", "dp/budget_spent")


class TensorBoardLogger(RunLogger):
    """Writes what `RunLogger` logs for TensorBoard: `tensorboard --logdir FOLDER` shows it.

    Curves are scalars; the run's settings are hyperparameters; the certificate and the report (as Markdown) are texts. What is private goes
    to event files of its own, in the folder `private` below: leave it out when you pass the log on. Event files hold numbers of 32 bits;
    epsilons are rounded up to these. A training that goes on from a checkpoint takes what was logged after that checkpoint back.

    Args:
        folder: of the event files; one for each training.
        delta, log_every_n_steps, private, report, allow_large_delta: see `RunLogger`.
    Raises:
        InputError: an argument cannot be used.
        MissingExtraError: tensorboard is not installed, or what the report needs.
    """

    _formats = (".md",)

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        delta: float,
        log_every_n_steps: int | None = None,
        private: bool = False,
        report: bool = True,
        allow_large_delta: bool = False,
    ) -> None:
        if find_spec("tensorboard") is None:
            raise MissingExtraError("TensorBoardLogger: tensorboard is not installed.", remedy='pip install "lethe-dp[logging]"')
        super().__init__(
            delta=delta, log_every_n_steps=log_every_n_steps, private=private, report=report, allow_large_delta=allow_large_delta
        )
        self._folder = as_path(folder)
        self._writers: dict[bool, Any] = {}
        self._resumed = 0

    def _open(self, run: Run, settings: Mapping[str, Setting], steps_done: int) -> None:
        self._shut()
        self._resumed = steps_done
        self._add(event_summaries.session_begins(settings), 0, private=False)

    def _scalars(self, values: Mapping[str, float], step: int, *, private: bool) -> None:
        rounded = {name: _upwards(value) if name in _CERTIFIED else value for name, value in values.items()}
        self._add(event_summaries.scalars(rounded), step, private=private)

    def _text(self, name: str, text: str, *, private: bool) -> None:
        self._add(event_summaries.text(name, text), self._step, private=private)

    def _documents(self, files: Mapping[str, Path]) -> None:
        for name, path in files.items():
            if path.suffix == ".md":
                self._text(f"dp/{path.stem}", _without_metadata(path.read_text()), private=False)
            elif name == "run":
                self._text("dp/run", f"```yaml\n{path.read_text()}```", private=False)

    def _close(self, status: Literal["FINISHED", "FAILED"]) -> None:
        self._add(event_summaries.session_ends(well=status == "FINISHED"), self._step, private=False)
        self._shut()

    def _add(self, summary: Any, step: int, *, private: bool) -> None:
        writer, event = self._writer(private), tensorboard_module("compat.proto.event_pb2").Event
        writer.add_event(event(wall_time=time.time(), step=step, summary=summary))
        writer.flush()  # a training that is killed has its log

    def _writer(self, private: bool) -> Any:
        if private not in self._writers:
            folder = self._folder / "private" if private else self._folder
            writer = tensorboard_module("summary.writer.event_file_writer").EventFileWriter(str(folder))
            if self._resumed and self._last is None:  # what is in the folder of later steps than these was lost
                proto = tensorboard_module("compat.proto.event_pb2")
                begun = proto.SessionLog(status=proto.SessionLog.START)
                writer.add_event(proto.Event(wall_time=time.time(), step=self._resumed + 1, session_log=begun))
            self._writers[private] = writer
        return self._writers[private]

    def _shut(self) -> None:
        writers, self._writers = self._writers, {}
        for writer in writers.values():
            writer.close()


def _without_metadata(markdown: str) -> str:
    """A model card's section without the block between dashes on top."""
    return markdown.partition("---\n")[2].partition("---\n")[2]


def _upwards(value: float) -> float:
    """The smallest number of 32 bits that is not below `value`; what is no number is infinity."""
    if math.isnan(value):
        return math.inf
    with np.errstate(over="ignore"):
        rounded = np.float32(value)
    return float(rounded if float(rounded) >= value else np.nextafter(rounded, np.float32(math.inf)))
