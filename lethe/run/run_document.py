"""A run's fields as plain data, in the order of the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lethe.run.regularisers import Regulariser
from lethe.run.schedules import schedule_document


def run_document(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a run; of passes and steps only the one that was given.

    Args:
        fields: of a Run, by name.
    """
    document: dict[str, Any] = {"records": fields["records"], "batches": fields["batches"].to_document()}
    document |= {"steps": fields["steps"]} if fields["passes"] is None else {"passes": fields["passes"]}
    return document | {
        "step_size": schedule_document(fields["step_size"]),
        "clip_norm": fields["clip_norm"],
        "noise_multiplier": _schedule(fields["noise_multiplier"]),
        "noise_at": fields["noise_at"],
        **_extras(fields),
        "loss": fields["loss"].to_document(),
        "regulariser": _regulariser(fields["regulariser"]),
        "release": fields["release"],
        "neighbours": fields["neighbours"],
    }


def _extras(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that few runs have; a document names them only when they are set."""
    extras = {
        "clip_method": None if fields["clip_method"] == "clip" else fields["clip_method"],
        "clip_groups": None if fields["clip_groups"] is None else list(fields["clip_groups"]),
        "pass_weights": _schedule(fields["pass_weights"]),
        "noise_budget": fields["noise_budget"],
        "noise": None if fields["noise"] is None else fields["noise"].to_document(),
        "seeded": fields["seeded"] or None,
        "unit": None if fields["unit"] == "record" else fields["unit"],
        "precision": None if fields["precision"] is None else fields["precision"].to_document(),
    }
    return {name: value for name, value in extras.items() if value is not None}


def _schedule(given: Any) -> Any:
    return None if given is None else schedule_document(given)


def _regulariser(given: Regulariser | tuple[Regulariser, ...] | None) -> Any:
    if isinstance(given, tuple):
        return [part.to_document() for part in given]
    return None if given is None else given.to_document()
