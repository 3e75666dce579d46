"""Certificate: what was proved of a run, by which theorem, from which hypotheses, and why not by another."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from lethe._version import __version__
from lethe.calculus.guarantees import Guarantee, guarantee_from_dict
from lethe.calculus.large_delta import delta_for, is_large, large_delta_note
from lethe.calculus.shown import shown
from lethe.documents import read_document, write_document
from lethe.errors import InputError
from lethe.hypotheses import ENFORCEABLE, ESTIMATORS, FRESH_NOISE, Evidence, Finding, Status, enforced
from lethe.run import Run

OtherStatus = Literal["looser", "dominated", "refused", "refuted", "one-sided", "proof-gap", "lower-bound"]
_RELATIONS = {"replace_one": "replace one", "zero_out": "zero out one", "add_or_remove": "add or remove one"}
_ALWAYS_NAMED = 3  # Lethe's own theorems come first
_RELEASES = {"last": "last iterate only", "all": "every iterate"}


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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Certificate:
    """A proved (epsilon, delta) for what a run releases.

    Args:
        run: the run.
        delta: the delta asked for.
        epsilon: the epsilon proved at that delta; inf means that nothing is protected.
        theorem: the theorem used, the one with the smallest epsilon of those that apply.
        guarantee: what it proves, at every delta.
        lipschitz: the step constant it rests on, None for composition.
        findings: its hypotheses.
        others: every other theorem, with its epsilon or the reason against it.
        citations: the sources of what was used.
        version: of Lethe.
    """

    run: Run
    delta: float
    epsilon: float
    theorem: str
    guarantee: Guarantee
    lipschitz: StepConstant | None
    findings: tuple[Finding, ...]
    others: tuple[Other, ...]
    citations: tuple[Citation, ...]
    version: str = __version__

    def __repr__(self) -> str:
        large = " (delta >= 1/records)" if self.large_delta else ""
        return f"Certificate({self._claim}{large}, by {self.theorem}, run {self.run.run_id})"

    @property
    def large_delta(self) -> bool:
        r"""Whether $\delta \ge 1/n$, with which a record may be published whole."""
        return is_large(self.delta, self.run.records)

    def epsilon_at(self, delta: float, *, allow_large_delta: bool = False) -> float:
        """The epsilon that the guarantee of this certificate gives at another delta in (0, 1), and below 1/records.

        Raises:
            InputError: it is not, and no large one was allowed.
        """
        return self.guarantee.epsilon(delta_for(self.run.records, delta, allow_large_delta=allow_large_delta))

    def delta_at(self, epsilon: float) -> float:
        """The delta that the guarantee of this certificate gives at epsilon >= 0."""
        return self.guarantee.delta(epsilon)

    def explain(self) -> str:
        """The certificate as text for a person: what holds, by what, from what, and why nothing else was used."""
        run = self.run
        lines = [f"{self._claim + '.':<72}lethe {self.version}, run {run.run_id}, {run.total_steps} steps"]
        if self.epsilon == float("inf"):
            lines.append(self.not_private)
        step = f"Lipschitz constant of a step {self.lipschitz.constant:.7g} ({self.lipschitz.certificate})" if self.lipschitz else ""
        lines.append("    ".join(part for part in (f"by  {self.theorem}", step, self.guarantee.describe()) if part))
        listed = [finding for finding in self.findings if finding is not self._seeded]  # that one has its line already
        width = max((len(finding.name) for finding in listed), default=0)
        lines += [f"    {_label(finding):<8}   {finding.name:<{width}}   {_detail(finding)}" for finding in listed]
        lines += _why_nots(self.others)
        if (note := large_delta_note(self.delta, run.records)) is not None:
            lines.append(note)
        return "\n".join(lines)

    @property
    def _claim(self) -> str:
        return f"({shown(self.epsilon)}, {self.delta:g})-DP, {_RELATIONS[self.run.neighbours]}, {_RELEASES[self.run.release]}"

    @property
    def not_private(self) -> str:
        """A line on why nothing is proved, of a seeded run with the epsilon that fresh noise would give; empty where epsilon is finite."""
        if self.epsilon < float("inf"):
            return ""
        seeded = self._seeded
        why = "no theorem bounds what this run reveals; see the reasons below" if seeded is None else seeded.detail
        return f"NOT PRIVATE: {why}."

    @property
    def _seeded(self) -> Finding | None:
        return next((finding for finding in self.findings if finding.name == FRESH_NOISE and finding.status == "fails"), None)

    def cite(self) -> str:
        """The sources of the theorem and of the conversions it used, one a line."""
        return "\n".join(f"[{citation.key}] {citation.text}" for citation in self.citations)

    def to_dict(self) -> dict[str, Any]:
        """The certificate as plain data that JSON can hold; an infinite epsilon is the text "inf"; `large_delta` is there if true."""
        return {
            "epsilon": _finite(self.epsilon),
            "delta": self.delta,
            **({"large_delta": True} if self.large_delta else {}),
            "theorem": self.theorem,
            "guarantee": self.guarantee.to_dict(),
            "neighbours": self.run.neighbours,
            "release": self.run.release,
            "lipschitz": None
            if self.lipschitz is None
            else {"constant": self.lipschitz.constant, "certificate": self.lipschitz.certificate},
            "hypotheses": [finding.to_dict() for finding in self.findings],
            "others": [
                {"theorem": other.theorem, "status": other.status, "epsilon": _finite(other.epsilon), "why": other.why}
                for other in self.others
            ],
            "citations": [{"key": citation.key, "text": citation.text} for citation in self.citations],
            "run": self.run.to_document(),
            "lethe": self.version,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any], *, source: str | None = None) -> Certificate:
        """The certificate that `to_dict` wrote.

        Raises:
            InputError: a key is missing or holds what no certificate holds.
        """
        try:
            loaded = _parsed(cls, content)
            _refuse_contradictions(loaded, content)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error).splitlines()[0].rstrip(".")
            raise InputError(
                f"not a certificate: {reason}.", source=source, remedy="give a file written by `lethe certify -o` or Certificate.save."
            ) from error
        return loaded

    def with_finding(self, finding: Finding) -> Certificate:
        """The same certificate with one more finding, such as what the training adds to what the run says."""
        return replace(self, findings=(*self.findings, finding))

    def enforced(self, reasons: Mapping[str, str], *, by: str = ESTIMATORS) -> Certificate:
        """The same certificate, where the code that trained makes true what was declared: by the name of a hypothesis, how it does.

        `recheck` accepts this of the code and the hypotheses that are named in `lethe.hypotheses.ENFORCEABLE`.
        """
        return replace(self, findings=enforced(self.findings, reasons, by=by))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read a certificate from a file that `save` wrote.

        Raises:
            InputError: the file cannot be read or holds no certificate.
        """
        return cls.from_dict(read_document(path), source=str(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the certificate to a .json (or .yaml) file, whole or not at all."""
        write_document(path, self.to_dict())


def _parsed(cls: type[Certificate], content: dict[str, Any]) -> Certificate:
    lipschitz = content["lipschitz"]
    return cls(
        run=Run.from_document(content["run"]),
        delta=float(content["delta"]),
        epsilon=float(content["epsilon"]),
        theorem=_text(content["theorem"]),
        guarantee=guarantee_from_dict(content["guarantee"]),
        lipschitz=None
        if lipschitz is None
        else StepConstant(constant=float(lipschitz["constant"]), certificate=_text(lipschitz["certificate"])),
        findings=tuple(Finding(**{key: _text(value) for key, value in finding.items()}) for finding in content["hypotheses"]),
        others=tuple(_other(other) for other in content["others"]),
        citations=tuple(Citation(key=_text(entry["key"]), text=_text(entry["text"])) for entry in content["citations"]),
        version=_text(content["lethe"]),
    )


def _refuse_contradictions(loaded: Certificate, content: dict[str, Any]) -> None:
    """What a certificate says twice must agree, above all its epsilon with its guarantee."""
    if not 0 < loaded.delta < 1:
        raise ValueError(f"delta is {loaded.delta:g}")
    # Other processors and libraries may round the last digits differently.
    if not math.isclose(loaded.epsilon, loaded.guarantee.epsilon(loaded.delta), rel_tol=1e-9):
        raise ValueError(
            f"epsilon is {loaded.epsilon:g}, but its guarantee gives {loaded.guarantee.epsilon(loaded.delta):g} at delta = {loaded.delta:g}"
        )
    if content.get("large_delta", loaded.large_delta) is not loaded.large_delta:
        raise ValueError(f"large_delta is {content['large_delta']!r}, but delta is {loaded.delta:g} with {loaded.run.records} records")
    for name, said in (("neighbours", loaded.run.neighbours), ("release", loaded.run.release)):
        if content[name] != said:
            raise ValueError(f"{name} is {content[name]!r}, but its run says {said!r}")
    for finding in loaded.findings:
        if finding.status not in get_args(Status) or finding.evidence not in get_args(Evidence):
            raise ValueError(f"the hypothesis {finding.name!r} is neither of the known status nor of known evidence")
        if finding.by and (finding.by not in ENFORCEABLE or finding.evidence != "enforced"):
            raise ValueError(f"the hypothesis {finding.name!r} is {finding.evidence} by {finding.by!r}, which is not known to enforce any")
    for other in loaded.others:
        if other.status not in get_args(OtherStatus):
            raise ValueError(f"the status of {other.theorem!r} is {other.status!r}")


def _text(value: object) -> Any:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} stands where text is needed")
    return value


def _other(content: dict[str, Any]) -> Other:
    epsilon = content["epsilon"]
    return Other(
        theorem=_text(content["theorem"]),
        status=_text(content["status"]),
        epsilon=None if epsilon is None else float(epsilon),
        why=_text(content["why"]),
    )


def _label(finding: Finding) -> str:
    return finding.evidence if finding.status == "holds" else "FAILS"


def _detail(finding: Finding) -> str:
    return f"{finding.detail} [by {finding.by}]" if finding.by else finding.detail


def _finite(value: float | None) -> float | str | None:
    return "inf" if value == float("inf") else value


def _why_nots(others: tuple[Other, ...]) -> list[str]:
    """A line for each theorem not used; of the published ones only those that say something, and one line for the rest."""
    named = [other for place, other in enumerate(others) if place < _ALWAYS_NAMED or other.status != "refused"]
    if len(others) - len(named) == 1:  # its own line is no longer than one that counts it
        named = list(others)
    width = max((len(other.theorem) for other in named), default=0)
    lines = [_why_not(other, max(width, 18)) for other in named]
    if unnamed := len(others) - len(named):
        lines.append(f"and {unnamed} more do not apply: `lethe compare` names the hypothesis that fails")
    return lines


def _why_not(other: Other, width: int) -> str:
    sound = other.status in ("looser", "dominated", "refused")
    epsilon = (
        "" if other.epsilon is None else f": epsilon = {shown(other.epsilon)}" if sound else f"; it claims epsilon = {shown(other.epsilon)}"
    )
    status = "" if other.status in ("looser", "dominated") else f"{other.status}: "
    return f"not {other.theorem:<{width}} {status}{other.why}{epsilon}"
