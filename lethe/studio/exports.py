"""A run as Python code."""

from __future__ import annotations

from typing import Any

from lethe.documents.specification import Specification
from lethe.run.batches import Batches
from lethe.run.losses.base import Loss
from lethe.run.noise.base import CorrelatedNoise
from lethe.run.regularisers import Regulariser
from lethe.run.run import Run
from lethe.run.schedules import Explicit
from lethe.run.schedules.base import Schedule

_HOMES: tuple[tuple[type[Specification], str], ...] = (
    (Batches, "lethe.batches"),
    (Regulariser, "lethe.regularisers"),
    (Loss, "lethe.losses"),
    (Schedule, "lethe.schedules"),
    (CorrelatedNoise, "lethe.noise"),
)


def python_of(run: Run, delta: float) -> str:
    """Code that builds `run` and certifies it at `delta`; fields at their defaults are left out."""
    fields = "".join(f"    {name}={_expression(value)},\n" for name, value in _changed(run).items())
    return f"import lethe\n\nrun = lethe.Run(\n{fields})\nprint(lethe.certify(run, delta={delta!r}).explain())\n"


def _changed(part: Specification) -> dict[str, Any]:
    """Its fields that are not at their defaults; those without one are always there."""
    fields = type(part).model_fields
    values = {name: getattr(part, name) for name in fields}
    return {name: value for name, value in values.items() if fields[name].is_required() or value != fields[name].default}


def _expression(value: Any) -> str:
    if isinstance(value, Explicit):
        return repr(list(value.listed))
    if isinstance(value, tuple):
        return f"({''.join(f'{_expression(entry)}, ' for entry in value)})"
    for kind, home in _HOMES:
        if isinstance(value, kind):
            fields = ", ".join(f"{name}={_expression(entry)}" for name, entry in _changed(value).items())
            return f"{home}.{type(value).__name__}({fields})"
    return repr(value)
