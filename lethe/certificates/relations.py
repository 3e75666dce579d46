"""The neighbouring relations in words."""

from __future__ import annotations

from lethe.run.run import Neighbours

RELATIONS: dict[Neighbours, str] = {"replace_one": "replace one", "zero_out": "zero out one", "add_or_remove": "add or remove one"}
