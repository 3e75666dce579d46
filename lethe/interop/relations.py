"""Who is protected, in Lethe's words and in dp_accounting's."""

from __future__ import annotations

from dp_accounting.privacy_accountant import NeighboringRelation  # pyright: ignore[reportMissingTypeStubs]

from lethe.errors import InputError
from lethe.run import Neighbours

RELATIONS: dict[Neighbours, NeighboringRelation] = {
    "replace_one": NeighboringRelation.REPLACE_ONE,
    "zero_out": NeighboringRelation.REPLACE_SPECIAL,
    "add_or_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
}
_NAMES: dict[NeighboringRelation, Neighbours] = {relation: name for name, relation in RELATIONS.items()}


def neighbours_of(relation: object) -> Neighbours:
    """Lethe's name of one of dp_accounting's neighbouring relations.

    Raises:
        InputError: `relation` is not a `NeighboringRelation`.
    """
    if not isinstance(relation, NeighboringRelation):
        raise InputError(
            f"neighboring_relation: got {relation!r}; it needs a dp_accounting.NeighboringRelation.",
            source="the argument neighboring_relation",
            remedy="give NeighboringRelation.REPLACE_ONE, REPLACE_SPECIAL (zero out) or ADD_OR_REMOVE_ONE.",
        )
    return _NAMES[relation]
