"""The theorems that a certificate does not rest on, as text: in one line, or a line each."""

from __future__ import annotations

from collections.abc import Sequence

from lethe.calculus.upward_formatting import shown
from lethe.certificates.parts import Other

_HOLDS = ("looser", "dominated")


def others_counted(others: Sequence[Other]) -> list[str]:
    """A line such as "8 others do not apply or are looser (--all)", or none where there are no others."""
    if not others:
        return []
    said = {"refused": False, "looser": False, "claims": False}
    for other in others:
        said["looser" if other.status in _HOLDS else other.status if other.status == "refused" else "claims"] = True
    one = len(others) == 1
    words = {
        "refused": "does not apply" if one else "do not apply",
        "looser": "is looser" if one else "are looser",
        "claims": "claims what is not proved" if one else "claim what is not proved",
    }
    found = [words[name] for name, there in said.items() if there]
    return [f"{len(others)} other{'' if one else 's'} {' or '.join(found)} (--all, or explain(every=True))"]


def others_listed(others: Sequence[Other]) -> list[str]:
    """A line for each."""
    width = max([18, *(len(other.theorem) for other in others)])
    return [_line(other, width) for other in others]


def _line(other: Other, width: int) -> str:
    epsilon = ""
    if other.epsilon is not None:
        sound = other.status in (*_HOLDS, "refused")
        epsilon = f"{':' if sound else '; it claims'} epsilon = {shown(other.epsilon)}"
    status = {"looser": "", "dominated": "", "refused": "does not apply: "}.get(other.status, f"{other.status}: ")
    return f"    {other.theorem:<{width}} {status}{other.why}{epsilon}"
