"""The field `release` of a Run: required, since neither value is safe to assume."""

from __future__ import annotations

from typing import Literal

from lethe.documents.specification import Missing

Release = Literal["last", "all"]

RELEASE = Missing(
    meaning="a run must say what anybody outside may ever see of its training. "
    "last: only the final parameters; the epsilon is smaller and void once anything else gets out, such as an earlier checkpoint, "
    "one picked for its score, an average of iterates, or the optimiser's state. "
    "all: every iterate may be seen, so anything computed from them is covered too.",
    remedy="write release: last if nothing but the final parameters is ever kept, shown or used; else, or when in doubt, release: all.",
)
"""What is said where it is left out."""
