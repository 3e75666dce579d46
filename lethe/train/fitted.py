"""Fitted: what every training returns, with the report of what happened to the data; and `ModelDescription`, a model that training builds.
The training loops make it; users ask it for the model, the certificate and the record.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from torch import Tensor

from lethe.accounting.certify import certify
from lethe.calculus.filters import BudgetFilter, Odometer
from lethe.certificates.certificate import Certificate
from lethe.certificates.records import TrainingRecord
from lethe.documents.shortened import html_table
from lethe.errors import InputError
from lethe.run.run import Run

Model = TypeVar("Model", covariant=True)


class ModelDescription(Generic[Model]):
    """The description of a model that `lethe.train.fit` builds; the type parameter is the class of that model."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """What happened to the data. It is private: for whoever holds the data, covered by no certificate, and not to be published.

    Args:
        records: rows of the data; of a run about users, how many of these.
        steps: executed.
        left_over: records that a pass of fixed batches leaves out (the same ones every pass, except for shuffled batches).
        projected: rows whose features were longer than the bound and were projected on it; 0 of a network, whose features nobody projects.
        contributed: of a network, False where no record of any step had a gradient that could be measured (all held NaN, or overflowed) and
            was not 0 (as where no label counts): what was trained is then the start and noise. None where no step had records, and for
            linear models. How many is not said.
        gradients: of a network, how its records' gradients were formed: "per layer", of a whole batch at once; "record by record", which is
            slower; or "per layer and record by record". All are exact. None where no step had records, and for linear models.
    """

    records: int
    steps: int
    left_over: int
    projected: int = 0
    contributed: bool | None = None
    gradients: str | None = None

    @classmethod
    def of(cls, run: Run, **counts: Any) -> Diagnostics:
        """The report of a training by `run`, with the other fields as they are given."""
        used = run.steps_per_pass * run.batch_size
        left_over = run.records - used if run.batches.fixed and run.batches.exact_size else 0
        return cls(records=run.records, left_over=left_over, **counts)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Fitted(Generic[Model]):
    """A trained model, the run that was executed, and what is known of both.

    What a certificate of `run` covers is the weights: of a module its state dict, of a linear model `weights` and `intercept`. Release
    those. What is computed from private data besides (accuracy, mean loss, the report) is not covered. Nor is what modules hold in plain
    attributes, their containers and hooks, which `torch.save(model)` writes too: training refuses tensors, arrays, bytes and containers of
    numbers that are new or changed there, after the first step and at the end; numbers by themselves, texts, and what lies in classes and
    globals are not looked at.

    Args:
        model: the module that was given, with the last iterate in it; a `LinearPredictor`; or backbone, projection of the features and head
            as one module, in eval mode.
        run: the run that was executed, as recorded: what to certify.
        record: the training record: `lethe.certify(fitted, delta)` certifies and seals it. It is of the weights as they were when training
            ended; of a head in three forms: the whole model's state dict, the head's, and its weights and intercept.
        checked: what was looked at of the model's own code; of several processes, each from its own records.
        diagnostics: what happened to the data; private.
        spent: under a noise_budget, the most zCDP that any record has spent of it; else None. The guarantee of the run is the budget, not
            this number: where training stopped may itself depend on what was released.
        odometer: what this number is good for all the same: `odometer.epsilon(spent, delta)` bounds the privacy loss with probability at
            least 1 - delta, for a delta fixed before training. None without a budget, and of a seeded run, of which nothing is bounded.
        averaged: of `fit(..., ema=)` the model's state dict with the moving average of the iterates for its trained parameters, covered by
            the run's certificate: `model.load_state_dict(fitted.averaged)`; else None.
        clip_norms: of the method "adaptive" the norm at each step, which the certificate covers; else None.
        validation_losses: of `TrainOptions(validation_data=...)` the mean loss of these records after each epoch.
        delta: that the noise was planned for; None: the run was given.
        settings: what was left to `fit`, by name, such as {"epochs": 20, "lr": 0.0126}: functions of public numbers.
    """

    model: Model
    run: Run
    record: TrainingRecord
    checked: str
    diagnostics: Diagnostics
    spent: float | None = None
    odometer: Odometer | None = None
    averaged: Mapping[str, Tensor] | None = None
    clip_norms: tuple[float, ...] | None = None
    validation_losses: tuple[float, ...] = ()
    delta: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def certificate(self) -> Certificate:
        """The sealed certificate of this training at the delta that it was planned for: `lethe.certify(fitted, delta)`.

        Raises:
            InputError: the run was given, and with it no delta.
        """
        if self.delta is None:
            raise InputError(
                "certificate: this training was planned by a run, which says no delta.",
                source="run of lethe.train.fit",
                remedy="lethe.certify(fitted, delta=1e-5).",
            )
        return certify(self.record, self.delta, allow_large_delta=True)  # it was looked at when the noise was planned

    @property
    def epsilon(self) -> float:
        """Epsilon of the certificate; raises what `certificate` raises."""
        return self.certificate.epsilon

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write what is promised, to whom, and what it rests on: `lethe.report.write` of the certificate.

        Args:
            path: a file that ends in .html, .md, .tex or .json.
        Raises:
            InputError: as `certificate`, or a path that cannot be written.
            MissingExtraError: jinja2 or matplotlib is not installed.
        """
        from lethe.report import write

        write(self.certificate, path)

    @property
    def declared(self) -> tuple[str, ...]:
        """What the certificate rests on besides, and nobody checked, statement by statement; of several processes, each its own."""
        return tuple(claim.detail for claim in self.record.declared)

    def __repr__(self) -> str:
        return f"Fitted({type(self.model).__name__}, run {self.run.run_id}, {self.diagnostics.steps} steps, {len(self.declared)} declared)"

    def _repr_html_(self) -> str:
        """What was trained and checked, and below it the certificate, or the run where it says no delta: tables for notebooks."""
        (trained, *_), below = str(self).splitlines(), self.run if self.delta is None else self.certificate
        return html_table(trained, (), [("checked", self.checked)]) + below._repr_html_()

    def __str__(self) -> str:
        """The model's class, the run and what was checked; the certificate, or what is declared where there is none yet."""
        lines = [f"{type(self.model).__name__} trained by run {self.run.run_id}: {self.diagnostics.steps} of {self.run.total_steps} steps"]
        spent = [] if self.spent is None else [f"spent     {self.spent:.6g} of the noise budget"]
        claim_lines = [f"declared  {line}" for line in self.declared] if self.delta is None else [str(self.certificate)]
        words = (f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in self.settings.items())
        chosen = [f"settings  {', '.join(words)}: of records, epsilon, delta and the first weights"] if self.settings else []
        return "\n".join([*lines, f"checked   {self.checked}", *chosen, *spent, *claim_lines])


def spending(budget: BudgetFilter | None, *, seeded: bool) -> dict[str, Any]:
    """The fields of `Fitted` that say what a budget, if there is one, has spent; of noise that can be made again nothing is bounded."""
    if budget is None:
        return {}
    return {"spent": budget.spent(), "odometer": None if seeded else Odometer.up_to(budget.rho)}
