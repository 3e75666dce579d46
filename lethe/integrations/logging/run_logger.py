"""RunLogger: what a log of a private training holds, whatever it is written to."""

from __future__ import annotations

import math
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import lethe.report
from lethe.accounting.certify import certify
from lethe.calculus.domains import require_count
from lethe.certificates.certificate import Certificate
from lethe.errors import InputError, MissingExtraError
from lethe.integrations.logging.description import PRIVATE_LAST, PRIVATE_NOTE, EpsilonSoFar, Setting, settings_of
from lethe.run.run import Run
from lethe.train import Callback
from lethe.train.callbacks.callback import StepEnd, TrainingEnd

_POINTS = 50
_BASES = {
    "public_data": "computed on public data",
    "paid": "a noisy answer that was paid for; its price is in another certificate, not in this one",
}


class RunLogger(Callback, ABC):
    """A logger of private training; `TensorBoardLogger` and `MLflowLogger` say where to.

    Logged under `dp/`, of every `log_every_n_steps`-th step, the first and the last: the noise (standard deviation and multiplier), step
    size, clip norm, nominal batch size, and the epsilon of the steps so far as `EpsilonSoFar` has it. At the end: the certificate, its
    epsilon as `dp/certified_epsilon`, and the report. Under `released/`: what you hand over to `log_released`.

    Not logged: the training loss, norms of gradients or parameters, how many records a batch drew or how many gradients counted. All of
    them tell of the records, and no certificate covers them. With `private=True` those that training knows are logged under `private/`,
    with a note that says so: such a log is as private as the data.

    Args:
        delta: in (0, 1), and below 1/records; of every epsilon.
        log_every_n_steps: None: about 50 times a training, which bounds what the epsilons cost by 50 certifications.
        private: log under `private/` how many records each batch had, their mean loss (of networks, with release all), and at the end
            `projected` and `contributed` of the report.
        report: whether the report is written; needs the extra `report`.
        allow_large_delta: whether a delta of 1/records or more is meant.
    Raises:
        InputError: an argument cannot be used.
        MissingExtraError: a package is not installed.
    """

    def __init__(
        self,
        *,
        delta: float,
        log_every_n_steps: int | None = None,
        private: bool = False,
        report: bool = True,
        allow_large_delta: bool = False,
    ) -> None:
        if log_every_n_steps is not None:
            require_count("log_every_n_steps", log_every_n_steps)
        if report and not all(find_spec(package) for package in ("jinja2", "matplotlib")):
            raise MissingExtraError(
                "report: jinja2 or matplotlib is not installed.", remedy='pip install "lethe-dp[report]"; or give report=False.'
            )
        self.private, self._delta, self._given = private, delta, log_every_n_steps
        self._report, self._allow_large_delta = report, allow_large_delta
        self._epsilon: EpsilonSoFar | None = None
        self._run: Run | None = None
        self._last: StepEnd | None = None
        self._every, self._step, self._logged, self._over = 1, 0, 0, False

    def on_train_begin(self, run: Run, *, steps_done: int) -> None:
        """Open the log, with the run's settings."""
        self._epsilon = EpsilonSoFar(run, self._delta, steps_done=steps_done, allow_large_delta=self._allow_large_delta)
        self._every = self._given or math.ceil(run.total_steps / _POINTS)
        self._run, self._last, self._step, self._logged, self._over = run, None, steps_done, steps_done, False
        self._open(run, settings_of(run, self._delta, self._epsilon.planned()), steps_done)
        self._text("dp/what_epsilon_is", self._epsilon.note, private=False)
        if self.private:
            self._text("private/note", PRIVATE_NOTE + (PRIVATE_LAST if run.release == "last" else ""), private=True)

    def on_step_end(self, step: StepEnd) -> None:
        """Log the step, if it is its turn."""
        assert self._epsilon is not None
        self._epsilon.note_step(step)
        first, self._last, self._step = self._last is None, step, step.step
        if first or step.step % self._every == 0 or step.step == step.steps:
            self._log(step)

    def on_train_end(self, end: TrainingEnd) -> None:
        """Log the certificate and the report."""
        if self._last is not None and self._logged != self._last.step:
            self._log(self._last)
        self._over = True
        # Weights of a kind that cannot be sealed have a run alone; the delta was looked at when training began.
        certificate = certify(end.record if end.record.released else end.run, self._delta, allow_large_delta=True)
        self._scalars({"dp/certified_epsilon": certificate.epsilon}, end.steps, private=False)
        self._text("dp/certificate", str(certificate), private=False)
        if end.diagnostics is not None:
            told = {"private/projected": float(end.diagnostics.projected)}
            if end.diagnostics.contributed is not None:
                told["private/contributed"] = float(end.diagnostics.contributed)
            self._scalars(told, end.steps, private=True)
        with tempfile.TemporaryDirectory() as folder:
            self._documents(self._written(certificate, end.run, Path(folder)))
        self._close("FINISHED")

    def on_exception(self, kind: str) -> None:
        """Close the log: training failed."""
        self._text("dp/failed", f"training ended with {kind}; no model of it may be released.", private=False)
        self._close("FAILED")

    def log_released(self, name: str, value: float, *, basis: Literal["public_data", "paid"], step: int | None = None) -> None:
        """Log a number that may be seen by everybody, such as a loss on public data, as `released/name`.

        Args:
            name: of the curve.
            value: any number; nan is logged as such.
            basis: "public_data": computed from released iterates and public data alone; "paid": a noisy answer, accounted for elsewhere.
            step: after which it was computed; None: the last one.
        Raises:
            InputError: no training has begun, an argument cannot be used, or release is last and training is not over: what is computed
                of an iterate on the way would release it.
        """
        if self._run is None:
            raise InputError(
                "log_released: no training has begun.", remedy="give this logger to fit or PrivacyEngine as callbacks=[logger]."
            )
        if self._run.release == "last" and not self._over:
            raise InputError(
                f"log_released: {name!r} of a training with release: last that is not over; whatever is computed of an iterate on the way "
                "releases it.",
                source="run.release = last",
                remedy="log it after fit has returned, of the last iterate; or train with release: all.",
            )
        if basis not in _BASES:
            raise InputError(f"basis: got {basis!r}; it needs public_data or paid.", remedy="a number computed on the records is neither.")
        self._scalars({f"released/{name}": float(value)}, self._step if step is None else step, private=False)
        self._text(f"released/{name}/basis", _BASES[basis], private=False)

    def _log(self, step: StepEnd) -> None:
        assert self._epsilon is not None
        values = {
            "dp/noise_multiplier": step.noise_multiplier,
            "dp/step_size": step.step_size,
            "dp/noise_std": step.noise_std,
            "dp/nominal_batch_size": float(step.batch_size),
        }
        besides = {
            "dp/clip_norm": step.clip_norm,
            "dp/budget_spent": step.spent,
            "dp/epsilon": self._epsilon.at(step),
        }
        self._scalars(values | {name: value for name, value in besides.items() if value is not None}, step.step, private=False)
        if step.private is not None:
            told = {"private/records_in_batch": float(step.private.records)}
            if step.private.loss is not None:
                told["private/training_loss"] = step.private.loss
            self._scalars(told, step.step, private=True)
        self._logged = step.step

    def _written(self, certificate: Certificate, run: Run, folder: Path) -> Mapping[str, Path]:
        """The files of the run, its certificate and its report, by what they are."""
        files = {"run": folder / "run.yaml", "certificate": folder / "certificate.json"}
        run.save(files["run"])
        certificate.save(files["certificate"])
        if self._report:
            files["report"] = folder / f"report{self._format}"
            lethe.report.write(certificate, files["report"], allow_large_delta=True)
        return files

    _format = ".html"

    @abstractmethod
    def _open(self, run: Run, settings: Mapping[str, Setting], steps_done: int) -> None: ...

    @abstractmethod
    def _scalars(self, values: Mapping[str, float], step: int, *, private: bool) -> None: ...

    @abstractmethod
    def _text(self, name: str, text: str, *, private: bool) -> None: ...

    @abstractmethod
    def _documents(self, files: Mapping[str, Path]) -> None: ...

    @abstractmethod
    def _close(self, status: Literal["FINISHED", "FAILED"]) -> None: ...
