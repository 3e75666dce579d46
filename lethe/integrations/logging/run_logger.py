"""RunLogger: what a log of a private training holds, whichever tool it is written to: settings, notes, and the certified epsilon so far.
The base class of `TensorBoardLogger` and `MLflowLogger`; training calls it as a `Callback`. Numbers that tell of records are logged only
with private=True.
"""

import math
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import lethe.report
from lethe.accounting.certify import certify, stopped
from lethe.calculus.domains import require_count
from lethe.calculus.large_delta import delta_for
from lethe.certificates.certificate import Certificate
from lethe.documents.version import __version__
from lethe.errors import HypothesisError, InputError, MissingExtraError
from lethe.run.participation import Participation
from lethe.run.run import Run
from lethe.train import Callback
from lethe.train.callbacks.callback import StepEnd, TrainingEnd

Setting = str | float | bool

_PRIVATE_NOTE = (
    "Computed from the records, and covered by no certificate: for whoever holds the data. Publishing any of it makes the epsilon that is "
    "logged beside it untrue. Keep it as private as the data, and delete it before the log is shared."
)
_PRIVATE_LAST = " With release: last the training loss is not logged, not even here: it tells of iterates that must not leave the training."
_LAST = (
    "release: last. No iterate but the last may leave the training, so nothing has been released yet, and there is no epsilon of the steps "
    "so far. dp/certified_epsilon, at the end, is of the last iterate."
)
_BUDGET = (
    "A noise budget. dp/epsilon is of the whole budget from the first step on, since where training stops may depend on what was released; "
    "dp/budget_spent says how much of it (zCDP) the steps have used, which is no guarantee."
)
_ALL = (
    "dp/epsilon is what lethe.certify proves of a run of as many steps, every iterate released. It is for a number of steps that was fixed "
    "in advance: a training that is broken off because of what was seen in it costs the epsilon of the whole plan."
)
_SEEDED = " The noise came from a seed or generator that somebody chose: whoever has it knows the noise, and epsilon is infinite."


class EpsilonSoFar:
    r"""$\varepsilon(\delta)$ of what was released up to a step, from public facts: the run, and the noise multipliers that were used.

    Of a run with `release: all` it is `lethe.certify` of the run of that many steps; of one with `release: last` there is none; of one with
    a noise budget it is of the whole budget. A certification takes 1 to 10 ms, and some 100 ms where batches are drawn at random, whatever
    the number of steps.

    Args:
        run: that is carried out.
        delta: in (0, 1).
        steps_done: that were taken before, with the run's own noise.
        allow_large_delta: whether a delta of 1/records or more is meant.
    Raises:
        InputError: delta cannot be used.
    """

    def __init__(self, run: Run, delta: float, *, steps_done: int = 0, allow_large_delta: bool = False) -> None:
        self._run, self._delta = run, delta_for(run.records, delta, allow_large_delta=allow_large_delta)
        planned = run.noise_multiplier is not None
        self._used: list[float] = run.uncorrelated.noise_multipliers[:steps_done].tolist() if planned else []

    @property
    def note(self) -> str:
        """What the number is, or why there is none, in words."""
        note = _LAST if self._run.release == "last" else _ALL if self._run.noise_budget is None else _BUDGET
        return note + (_SEEDED if self._run.seeded else "")

    def planned(self) -> float | None:
        """The epsilon of the whole run as planned; None where its noise is chosen along the way.

        Raises:
            InputError: delta is not above what a cap on the batches costs.
        """
        run = self._run
        if run.noise_multiplier is None:
            return None
        return self._certified(lambda: run)

    def note_step(self, step: StepEnd) -> None:
        """A step was taken; its noise is noted where the plan does not say it."""
        if self._run.noise_budget is not None:
            self._used.append(step.noise_multiplier)

    def at(self, step: StepEnd) -> float | None:
        """Epsilon of the steps up to this one, the last that was noted; None where nothing was released."""
        run, steps = self._run, step.step
        if run.release == "last":
            return None
        if run.noise_budget is not None:
            sizes = run.step_sizes[:steps].tolist()
            return self._certified(lambda: run.replace(steps=steps, step_size=sizes, noise_multiplier=list(self._used)))
        if run.noise_at == "pass_ends" and steps not in run.noisy_steps + 1:
            return math.inf  # an iterate that has no noise of its own is out
        if run.noise is not None and not run.noise.any_length:
            return self._certified(lambda: run)  # a matrix is for the whole run, whose epsilon covers its beginning
        return self._certified(lambda: stopped(run, steps))

    def _certified(self, run: Callable[[], Run]) -> float:
        """The certified epsilon of a run; infinity where no theorem applies."""
        try:
            return certify(run(), self._delta, allow_large_delta=True).epsilon  # the delta was looked at
        except HypothesisError:
            return math.inf


def settings_of(run: Run, delta: float, planned_epsilon: float | None) -> dict[str, Setting]:
    """The public settings of a run, by name; without a planned epsilon its noise is chosen along the way."""
    document, batches = run.to_document(), run.batches
    in_groups = batches.participation is Participation.DRAW_IN_PUBLIC_GROUP
    settings: dict[str, Setting] = {
        "lethe": __version__,
        "run_id": run.run_id,
        "records": float(run.records),
        "batches": batches.design,
        **({"groups": float(batches.groups_of_records)} if in_groups else {}),
        "batch_size": float(run.batch_size),
        "steps": float(run.total_steps),
        "noise_at": run.noise_at,
        **({} if run.noise is None else {"noise": run.noise.kind}),
        "release": run.release,
        "neighbours": run.neighbours,
        **({} if run.unit == "record" else {"unit": run.unit}),
        "seeded": run.seeded,
        "delta": delta,
    }
    for name in ("step_size", "clip_norm", "noise_multiplier", "noise_budget"):
        value = document.get(name)
        settings[name] = float(value) if isinstance(value, int | float) else "none" if value is None else "schedule"
    if run.noise_multiplier is None:
        settings["noise_multiplier"] = "chosen along the way"
    if planned_epsilon is not None:
        settings["planned_epsilon"] = planned_epsilon
    return settings


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
            self._text("private/note", _PRIVATE_NOTE + (_PRIVATE_LAST if run.release == "last" else ""), private=True)

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
            scalars = {"private/projected": float(end.diagnostics.projected)}
            if end.diagnostics.contributed is not None:
                scalars["private/contributed"] = float(end.diagnostics.contributed)
            self._scalars(scalars, end.steps, private=True)
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
        """Write the curves of one step: public numbers, and private ones where asked for."""
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
            scalars = {"private/records_in_batch": float(step.private.records)}
            if step.private.loss is not None:
                scalars["private/training_loss"] = step.private.loss
            self._scalars(scalars, step.step, private=True)
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
