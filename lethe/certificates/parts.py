"""The parts of a certificate: citations, step constants, theorems not used, relations in words; and how each is read from a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from lethe.calculus.upward_formatting import shown
from lethe.certificates.findings import ENFORCEABLE, SAID, Evidence, Finding, Status
from lethe.run.participation import NOUNS, Unit
from lethe.run.run import Neighbours

OtherStatus = Literal["looser", "dominated", "refused", "refuted", "one-sided", "proof-gap", "lower-bound"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """Where a theorem is published: a short name such as feldman-2018, and authors, year, title and number."""

    key: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConstant:
    """The largest Lipschitz constant of one step, dimensionless, and why it holds."""

    constant: float
    certificate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A theorem that was not used.

    Args:
        theorem: its name.
        status: "looser" and "dominated" apply; "refused" does not; "refuted" (false), "one-sided" (covers one direction of the two),
            "proof-gap" (its proof does not cover this run) and "lower-bound" may never be used.
        epsilon: what it gives at the certificate's delta; None when it was refused.
        why: the deciding reason.
    """

    theorem: str
    status: OtherStatus
    epsilon: float | None
    why: str


def exactly(content: dict[str, Any], *names: str, besides: tuple[str, ...] = ()) -> dict[str, Any]:
    """`content`, if it has exactly these keys: a key that is not read would not be checked."""
    missing, strange = [name for name in names if name not in content], [name for name in content if name not in (*names, *besides)]
    if missing:
        raise KeyError(missing[0])
    if strange:
        raise ValueError(f"{strange[0]!r} is no part of one")
    return content


def read_step_constant(content: dict[str, Any]) -> StepConstant:
    """A `StepConstant` from the content of a file."""
    exactly(content, "constant", "certificate")
    return StepConstant(constant=float(content["constant"]), certificate=read_text(content["certificate"]))


def read_finding(content: dict[str, Any]) -> Finding:
    """A `Finding` from the content of a file."""
    exactly(content, "name", "status", "evidence", "detail", besides=("by", "said"))
    return Finding(**{key: read_text(value) for key, value in content.items()})


def require_known_finding(finding: Finding) -> None:
    """Refuse a hypothesis of a file that no code of Lethe writes, with a ValueError."""
    if finding.status not in get_args(Status) or finding.evidence not in get_args(Evidence):
        raise ValueError(f"the hypothesis {finding.name!r} is neither of the known status nor of known evidence")
    if finding.by and (finding.by not in ENFORCEABLE or finding.evidence != "enforced"):
        raise ValueError(f"the hypothesis {finding.name!r} is {finding.evidence} by {finding.by!r}, which is not known to enforce any")
    if finding.said and (finding.said not in SAID or finding.evidence != "declared"):
        raise ValueError(f"the hypothesis {finding.name!r} is {finding.evidence}, and said to be {finding.said!r}")


def read_citation(content: dict[str, Any]) -> Citation:
    """A `Citation` from the content of a file."""
    exactly(content, "key", "text")
    return Citation(key=read_text(content["key"]), text=read_text(content["text"]))


def read_other(content: dict[str, Any]) -> Other:
    """An `Other` from the content of a file."""
    exactly(content, "theorem", "status", "epsilon", "why")
    epsilon = content["epsilon"]
    return Other(
        theorem=read_text(content["theorem"]),
        status=read_text(content["status"]),
        epsilon=None if epsilon is None else float(epsilon),
        why=read_text(content["why"]),
    )


def read_text(value: object) -> Any:
    """`value`, if it is text."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} stands where text is needed")
    return value


def plain_number(value: float | None) -> float | str | None:
    """A number for a file: an infinite one is the text "inf"."""
    return "inf" if value == float("inf") else value


RELATIONS: dict[Neighbours, str] = {"replace_one": "replace one", "zero_out": "zero out one", "add_or_remove": "add or remove one"}

UNITS_SAID: dict[Unit, str] = {
    "record": "one record: a row, text or image, as the data were given. Of a person with several, each is protected by itself",
    "user": "one user, with all of its records: where a record is spoken of below, read user",
}
"""What is protected as a whole, which a page says once, whose other lines are those of the theorems."""


def relation_words(neighbours: Neighbours, unit: Unit) -> str:
    """A relation in words: "replace one"; about users "replace one user"."""
    words = RELATIONS[neighbours]
    return words if unit == "record" else f"{words} {NOUNS[unit][0]}"


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
    return [_other_line(other, width) for other in others]


def _other_line(other: Other, width: int) -> str:
    epsilon = ""
    if other.epsilon is not None:
        sound = other.status in (*_HOLDS, "refused")
        epsilon = f"{':' if sound else '; it claims'} epsilon = {shown(other.epsilon)}"
    status = {"looser": "", "dominated": "", "refused": "does not apply: "}.get(other.status, f"{other.status}: ")
    return f"    {other.theorem:<{width}} {status}{other.why}{epsilon}"
