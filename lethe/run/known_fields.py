"""Refusal of runs with an unknown design, release, relation, clip method or unit.

Theorems, trainers and planners call it first. A Run made of its document holds known values only; one that was changed behind its back, or
whose design was registered from outside and states a participation of its own, is refused by name, never taken for the nearest thing known.
"""

from typing import get_args

from lethe.errors import InputError
from lethe.run.fields import ClipMethod, NoiseAt, Release
from lethe.run.noise import NOISES, refuse_correlated
from lethe.run.participation import BatchSizes, Neighbours, Participation, Unit, said
from lethe.run.run import Run

_WORDS: dict[str, tuple[str, ...]] = {
    "release": get_args(Release),
    "neighbours": get_args(Neighbours),
    "noise_at": get_args(NoiseAt),
    "clip_method": get_args(ClipMethod),
    "unit": get_args(Unit),
}


def unknown_field(run: Run) -> tuple[str, str, str] | None:
    """The first field of `run` whose value is not known: its name, value, and the values that are known. None: all are known."""
    batches = run.batches
    for kind, fact, value in ((Participation, "participation", batches.participation), (BatchSizes, "batch sizes", batches.sizes)):
        if not isinstance(value, kind):  # pyright: ignore[reportUnnecessaryIsInstance]  # a class from outside may state anything
            allowed = " or ".join(member.value for member in kind)
            return "batches.design", f"{batches.design}, whose {fact} {said(value)} nothing here knows", allowed
    if run.noise is not None and type(run.noise) not in NOISES.values():
        return "noise", repr(run.noise), f"null or {' or '.join(NOISES)}"
    for name, words in _WORDS.items():
        if getattr(run, name) not in words:
            return name, repr(getattr(run, name)), " or ".join(words)
    return None


def require_run(run: object, *, source: str | None = None, correlated: bool = False) -> Run:
    """`run` itself, if it is a Run whose design, release, relation, clip method and unit are known, and whose noise is independent.

    `correlated`: who asks knows correlated noise, and it may be any that is known. `source` is of the error for what is no Run.
    """
    if not isinstance(run, Run):
        remedy = "build one with lethe.Run(...) or lethe.Run.load(path), or take the run of what training returned."
        raise InputError(f"run: got {type(run).__name__}; it needs a lethe.Run.", source=source, remedy=remedy)
    unknown = unknown_field(run)
    if unknown is not None:
        name, got, needed = unknown
        raise InputError(f"{name}: got {got}; it needs {needed}.", source=f"run.{name}", remedy="take one that is known.")
    if not correlated:
        refuse_correlated(run.noise)
    return run


def refuse_users(run: Run, where: str) -> None:
    """Refuse a run about users where nothing puts a user's records together; `where` is what was asked to carry it out, in words."""
    if run.unit != "record":
        raise InputError(
            f"unit: {run.unit}; {where} knows no users, and protects single records.",
            source="run.unit",
            remedy="give users=ids to TrainOptions, privatize(trainer, users=ids) or PrivateTraining; or state unit: record.",
        )
