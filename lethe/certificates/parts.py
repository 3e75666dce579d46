"""The parts of a certificate: citations, step constants, theorems not used, relations in words; and how each is read from a file.

Certificates, statements, comparisons and totals build and parse their content by these, so that a file with other keys or words is refused
in one way.
"""

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, TypeVar, get_args

from lethe.calculus.upward_formatting import shown
from lethe.certificates.findings import ENFORCEABLE, SAID, Evidence, Finding, Status
from lethe.run.participation import NOUNS, Unit
from lethe.run.run import Neighbours

OtherStatus = Literal["looser", "dominated", "refused", "refuted", "one-sided", "proof-gap", "lower-bound"]

PartT = TypeVar("PartT", bound="Citation | StepConstant | OtherTheorem | Finding")


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
class OtherTheorem:
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


def read_part(kind: type[PartT], content: dict[str, Any], *besides: str) -> PartT:
    """A part of a file that is made of texts and numbers: exactly its fields without a default, and maybe those `besides`."""
    needed = [field.name for field in fields(kind) if field.default is MISSING]
    exactly(content, *needed, besides=besides)
    return kind(**{field.name: _read(str(field.type), content[field.name]) for field in fields(kind) if field.name in content})


def _read(kind: str, value: Any) -> Any:
    if "float" not in kind:
        return read_text(value)
    return None if value is None and "None" in kind else float(value)  # pyright: ignore[reportArgumentType]


def read_findings(content: list[dict[str, Any]]) -> tuple[Finding, ...]:
    """The hypotheses of a file; a ValueError of one that no code of Lethe writes."""
    findings = tuple(read_part(Finding, entry, "by", "said") for entry in content)
    for finding in findings:
        if finding.status not in get_args(Status) or finding.evidence not in get_args(Evidence):
            raise ValueError(f"the hypothesis {finding.name!r} is neither of the known status nor of known evidence")
        if finding.by and (finding.by not in ENFORCEABLE or finding.evidence != "enforced"):
            raise ValueError(f"the hypothesis {finding.name!r} is {finding.evidence} by {finding.by!r}, which is not known to enforce any")
        if finding.said and (finding.said not in SAID or finding.evidence != "declared"):
            raise ValueError(f"the hypothesis {finding.name!r} is {finding.evidence}, and said to be {finding.said!r}")
    return findings


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
_NOT_USED = {
    "refused": ("does not apply", "do not apply"),
    "looser": ("is looser", "are looser"),
    "claims": ("claims what is not proved", "claim what is not proved"),
}


def others_counted(alternatives: Sequence[OtherTheorem]) -> list[str]:
    """A line such as "8 others do not apply or are looser (--all)", or none where there are no others."""
    if not alternatives:
        return []
    single = len(alternatives) == 1
    kinds = {
        "looser" if alternative.status in _HOLDS else "refused" if alternative.status == "refused" else "claims"
        for alternative in alternatives
    }
    phrases = [words[0 if single else 1] for kind, words in _NOT_USED.items() if kind in kinds]
    return [f"{len(alternatives)} other{'' if single else 's'} {' or '.join(phrases)} (--all, or explain(every=True))"]


def others_listed(alternatives: Sequence[OtherTheorem]) -> list[str]:
    """A line for each."""
    width = max([18, *(len(alternative.theorem) for alternative in alternatives)])
    return [_other_line(alternative, width) for alternative in alternatives]


def _other_line(alternative: OtherTheorem, width: int) -> str:
    epsilon = ""
    if alternative.epsilon is not None:
        sound = alternative.status in (*_HOLDS, "refused")
        epsilon = f"{':' if sound else '; it claims'} epsilon = {shown(alternative.epsilon)}"
    status = {"looser": "", "dominated": "", "refused": "does not apply: "}.get(alternative.status, f"{alternative.status}: ")
    return f"    {alternative.theorem:<{width}} {status}{alternative.why}{epsilon}"
