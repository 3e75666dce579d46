"""The parts of a certificate: citations, step constants, theorems not used; and how each is read from a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from lethe.certificates.findings import ENFORCEABLE, SAID, Evidence, Finding, Status

OtherStatus = Literal["looser", "dominated", "refused", "refuted", "one-sided", "proof-gap", "lower-bound"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """Where a theorem is published.

    Args:
        key: short name, such as "feldman-2018".
        text: authors, year, title, identifier with version or theorem number.
    """

    key: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConstant:
    """The Lipschitz constant of one step and the theorem that gives it.

    Args:
        constant: the largest over the steps of the run; dimensionless.
        certificate: why it holds, in words.
    """

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
    """Refuse a hypothesis of a file that no code of Lethe writes.

    Raises:
        ValueError: its status, its evidence, or who enforces or says it is none that is known.
    """
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
