"""Which run or mechanism a configuration of `lethe train` would use, from public facts, for `lethe plan` and `lethe studio`.

runs.py (`lethe plan`) and pages.py (`lethe studio`) call it with the file; nothing is trained and no record is read but for their number.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lethe.errors import InputError
from lethe.jobs.configuration import AUTO, Privacy
from lethe.jobs.training import Job
from lethe.run.run import Run


class _Chosen(Exception):
    """Ends a fit once its mechanism is chosen, before it pays or looks at a record."""


def plans(file: Path, epsilons: Sequence[float], delta: float | None) -> list[dict[str, Any]]:
    """A mapping for each epsilon; of the records only their number counts, and classes that are said to be public."""
    job, rows = Job.load(file), list[dict[str, Any]]()
    for epsilon in epsilons:
        target = {"epsilon": epsilon, "delta": job.privacy.delta if delta is None else delta}
        planned_job = Job.from_document({**job.to_document(), "privacy": {**job.privacy.model_dump(), **target}})
        chosen = (
            {"noise_multiplier": planned_job.prepare()[1].to_document()["noise_multiplier"]}
            if planned_job.model is None
            else _of_model(planned_job)
        )
        rows.append({**target, **chosen})
    return rows


class PublicRun(NamedTuple):
    """What a configuration would train by, its target, whether its noise is still to be found for it, and what to know of it."""

    run: Run
    privacy: Privacy
    find_noise: bool
    note: str = ""


def public_run(file: Path) -> PublicRun:
    """Its run, or the one that its estimator would choose, with its noise; where that is none the best run, which the note says.

    Raises:
        InputError: of an estimator whose mechanism is named and no run.
    """
    job = Job.load(file)
    if job.run is not None:
        records = {} if "records" in job.run else {"records": len(job.rows().train.features)}
        return PublicRun(Run.from_document({**records, **job.run}, source="run"), job.privacy, job.privacy.epsilon is not None)
    plan, note = _plan_of_model(job), ""
    if plan.run is None:
        note = f"model: it would be trained by {plan.name}, which is no run"
        if job.model is None or job.model.parameters.get("mechanism", AUTO) != AUTO:
            remedy = f"`lethe plan {file} --epsilon E` says what it is predicted to cost; or name a run, such as mechanism: full_batch."
            raise InputError(f"{note}.", source=str(file), remedy=remedy)
        sgd = {"model": {**job.model.to_document(), "mechanism": "sgd"}}
        plan = _plan_of_model(Job.from_document({**job.to_document(), **sgd}))
        note += f"; the page shows the best one, of {plan.name}."
    return PublicRun(plan.run(), job.privacy, False, note)


def _of_model(job: Job) -> dict[str, Any]:
    plan = _plan_of_model(job)
    return {"mechanism": plan.name, "how": plan.summary, "excess_risk": float(plan.risk)}


def _plan_of_model(job: Job) -> Any:
    """The plan that the configured estimator would choose: a fit on zeros of the data's shape, stopped after its choice."""
    assert job.model is not None
    table, chosen = job.rows().train, list[Any]()
    model = job.model.build(job.privacy, job.data, seed=job.seed).set_params(ledger=job.ledger and job.ledger.spending())
    if job.data.classes == ():
        model.set_params(classes=list(table.class_names))

    class Stopped(type(model)):
        def _choose(self, facts: Any, budget: Any) -> Any:
            chosen.append(super()._choose(facts, budget).plan)
            raise _Chosen

    labels = np.resize(model.classes, len(table.targets)) if job.model.is_classifier else np.zeros(len(table.targets))
    with suppress(_Chosen):
        Stopped(**model.get_params(deep=False)).fit(np.zeros(table.features.shape), labels)
    (plan,) = chosen
    return plan
