"""A run's fields as plain data, in the order of the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lethe.run.regularisers import Regulariser
from lethe.run.schedules import schedule_document


def run_document(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a run; of passes and steps only the one that is set, and of the fields that few runs have those that are set."""
    rare = {
        "clip_method": None if fields["clip_method"] == "clip" else fields["clip_method"],
        "clip_groups": None if fields["clip_groups"] is None else list(fields["clip_groups"]),
        "pass_weights": _schedule(fields["pass_weights"]),
        "noise_budget": fields["noise_budget"],
        "noise": None if fields["noise"] is None else fields["noise"].to_document(),
        "seeded": fields["seeded"] or None,
        "unit": None if fields["unit"] == "record" else fields["unit"],
        "precision": None if fields["precision"] is None else fields["precision"].to_document(),
    }
    part: Regulariser | tuple[Regulariser, ...] | None = fields["regulariser"]
    return {
        "records": fields["records"],
        "batches": fields["batches"].to_document(),
        **({"steps": fields["steps"]} if fields["passes"] is None else {"passes": fields["passes"]}),
        "step_size": schedule_document(fields["step_size"]),
        "clip_norm": fields["clip_norm"],
        "noise_multiplier": _schedule(fields["noise_multiplier"]),
        "noise_at": fields["noise_at"],
        **{name: value for name, value in rare.items() if value is not None},
        "loss": fields["loss"].to_document(),
        "regulariser": [one.to_document() for one in part] if isinstance(part, tuple) else None if part is None else part.to_document(),
        "release": fields["release"],
        "neighbours": fields["neighbours"],
    }


def _schedule(value: Any) -> Any:
    return None if value is None else schedule_document(value)
