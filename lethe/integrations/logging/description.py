"""What a log says of a run besides its curves: hyperparameters, and notes in words."""

from __future__ import annotations

from lethe.documents.version import __version__
from lethe.run.participation import Participation
from lethe.run.run import Run

Setting = str | float | bool

PRIVATE_NOTE = (
    "Computed from the records, and covered by no certificate: for whoever holds the data. Publishing any of it makes the epsilon that is "
    "logged beside it untrue. Keep it as private as the data, and delete it before the log is shared."
)
PRIVATE_LAST = " With release: last the training loss is not logged, not even here: it tells of iterates that must not leave the training."


def settings_of(run: Run, delta: float, planned_epsilon: float | None) -> dict[str, Setting]:
    """The public settings of a run, by name.

    Args:
        run: that is carried out.
        delta: of the epsilons.
        planned_epsilon: of the whole run; None: its noise is chosen along the way.
    """
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
