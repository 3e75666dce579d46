r"""Statement, the certificate of a release that is no run: what it costs, by which mechanism with which numbers, and what it rests on.

Every mechanism and every fit of an estimator makes one; `lethe.total` adds them up, the ledger pays by them, `lethe verify` recomputes
them. For a run of gradient descent there is `Certificate`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_args

from lethe.calculus.any_guarantee import guarantee_from_dict, require_relation
from lethe.calculus.domains import outside
from lethe.calculus.guarantees import Guarantee, NotPrivate
from lethe.calculus.large_delta import is_large, large_delta_note, open_delta
from lethe.calculus.upward_formatting import shown
from lethe.certificates.claims import UNREADABLE, Claims, no_such_document
from lethe.certificates.derivation import Derivation, derivation_lines
from lethe.certificates.findings import FRESH_NOISE, Finding, as_told, first_failure, not_fresh, uncovered
from lethe.certificates.keys import PublicKey
from lethe.certificates.parts import (
    UNITS_SAID,
    Citation,
    exactly,
    plain_number,
    read_findings,
    read_part,
    read_text,
    relation_words,
)
from lethe.certificates.records import ReleaseRecord
from lethe.certificates.seal import Seal, read_seal, seal
from lethe.documents.shortened import page_in_few_lines
from lethe.documents.strict import to_json
from lethe.documents.version import __version__
from lethe.errors import HypothesisError
from lethe.run.participation import Unit
from lethe.run.run import Neighbours

KIND = "statement"
_REMEDY = "give a file written by Statement.save."
_KEYS = ("kind", "name", "guarantee", "neighbours", "findings", "citations", "derivation", "records", "release_id", "lethe")
_BESIDES = ("epsilon", "delta", "seeded", "with_fresh_noise", "unit")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Statement(Claims):
    """The guarantee of a release, and what it rests on.

    Formal guarantee: for every two data sets that are neighbours in the sense of `neighbours`, the laws of what was released satisfy
    `guarantee`, in both directions. Not covered: the rounding of floating-point numbers, the generator (statistical, not cryptographic),
    and how long the computation took.

    Args:
        name: what was released, in a few words.
        guarantee: what it costs, for the one relation `neighbours`.
        neighbours: "replace_one" or "zero_out", with the number of records public, or "add_or_remove".
        findings: every hypothesis the guarantee rests on; all hold, but for fresh noise of what is seeded.
        citations: where the theorem is published.
        seeded: whether noise or secret draws came from a seed or generator that somebody chose: whoever has it knows them. What is given
            as `guarantee` is then kept as `with_fresh_noise`, and the guarantee is none.
        with_fresh_noise: what would hold had they been drawn fresh; None where they were.
        derivation: the mechanism's numbers that the guarantee follows from; None: nothing can compute it again, and of a file it counts
            as declared.
        records: n, where it is known and public.
        target_delta: the delta that was asked for, if any: the one that `explain` shows.
        unit: of privacy: what is replaced or left out as a whole; `records` then counts such.
        release_id: tells this release from others, also of the same mechanism with the same numbers; empty where nobody gave one.
        version: of Lethe.
        seal: of the release record that it is from; None where nobody vouches for it. One of another statement has a flaw, and a part has
            none: that of the whole is of it too.
    Raises:
        HypothesisError: a hypothesis fails.
        InputError: a field of the wrong type, an unknown relation or unit, or a guarantee that is about another one.
    """

    name: str
    guarantee: Guarantee
    neighbours: Neighbours
    findings: tuple[Finding, ...]
    citations: tuple[Citation, ...]
    seeded: bool = False
    with_fresh_noise: Guarantee | None = None
    derivation: Derivation | None = field(default=None, compare=False)
    records: int | None = field(default=None, compare=False)
    target_delta: float | None = field(default=None, compare=False)
    unit: Unit = "record"
    release_id: str = field(default="", compare=False)
    version: str = field(default=__version__, compare=False)
    seal: Seal[ReleaseRecord] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.guarantee, Guarantee):
            raise outside("guarantee", self.guarantee, "a guarantee of lethe.calculus")
        for name, value, allowed in (("neighbours", self.neighbours, get_args(Neighbours)), ("unit", self.unit, get_args(Unit))):
            if value not in allowed:
                raise outside(name, value, "one of " + ", ".join(allowed))
        require_relation(self.guarantee, self.neighbours)
        if self.target_delta is not None:
            open_delta(self.target_delta)
        object.__setattr__(self, "findings", tuple(self.findings))
        object.__setattr__(self, "citations", tuple(self.citations))
        if self.seeded:
            self._take_back()
        elif self.with_fresh_noise is not None:
            raise outside("with_fresh_noise", self.with_fresh_noise, "None, where nothing is seeded")
        failure = first_failure(finding for finding in self.findings if not (self.seeded and finding.name == FRESH_NOISE))
        if failure is not None:
            raise HypothesisError(
                f"{self.name}: {failure.name}: {failure.detail}", source=failure.source or None, remedy=failure.remedy or None
            )
        inner = self.derivation
        if inner is not None and any(part.seal is not None for part in inner.parts):
            object.__setattr__(self, "derivation", replace(inner, parts=tuple(replace(part, seal=None) for part in inner.parts)))
        if self.seal is not None and self.seal.record is not None and not self.seal.record.is_of(self):
            object.__setattr__(self, "seal", self.seal.flawed("over another statement than this one"))

    def _take_back(self) -> None:
        """Of what is seeded: no guarantee, and the reason."""
        if not isinstance(self.guarantee, NotPrivate):
            object.__setattr__(self, "with_fresh_noise", self.guarantee)
            object.__setattr__(self, "guarantee", NotPrivate())
        remaining = tuple(finding for finding in self.findings if finding.name != FRESH_NOISE)
        object.__setattr__(self, "findings", (*remaining, not_fresh(f"with fresh noise: {self.planned.describe()}")))

    def __repr__(self) -> str:
        return f"Statement({self._claim(self.target_delta)}, by {self.name})"

    def __str__(self) -> str:
        return page_in_few_lines(self.explain().splitlines(), head=2)

    @property
    def planned(self) -> Guarantee:
        """What it costs where noise and secret draws are fresh: what a budget is divided by, and never what a seeded release may claim."""
        return self.guarantee if self.with_fresh_noise is None else self.with_fresh_noise

    def epsilon(self, delta: float) -> float:
        r"""The smallest $\epsilon$ proved at $\delta \in [0, 1)$; InputError outside that range."""
        return self.guarantee.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        r"""The smallest $\delta$ proved at $\epsilon \ge 0$; InputError outside that range."""
        return self.guarantee.delta(epsilon)

    @property
    def large_delta(self) -> bool:
        r"""Whether the delta that was asked for is $\ge 1/n$, with which a record may be published whole."""
        return self.target_delta is not None and self.records is not None and is_large(self.target_delta, self.records)

    @property
    def not_private(self) -> str:
        """A line on why nothing is proved; empty where something is."""
        failing = next((finding for finding in self.findings if finding.status == "fails"), None)
        if failing is not None:
            return f"NOT PRIVATE: {failing.detail}."
        return "NOT PRIVATE: no epsilon is proved." if isinstance(self.guarantee, NotPrivate) else ""

    @property
    def releases(self) -> frozenset[str]:
        """What tells the releases in it from others: two statements that share one of these are about the same release."""
        if self.release_id:
            return frozenset([self.release_id])
        if self.derivation is not None and self.derivation.parts:
            return frozenset().union(*(part.releases for part in self.derivation.parts))
        content = {key: value for key, value in self.to_dict().items() if key in ("name", "neighbours", "derivation", "guarantee")}
        return frozenset([hashlib.sha256(to_json(content, indent=None).encode()).hexdigest()])

    def explain(self, delta: float | None = None) -> str:
        """The statement as text for a person: what holds, by which mechanism with which numbers, and from what.

        Args:
            delta: at which epsilon is shown; None: at the one that was asked for, if any.
        """
        level = self.target_delta if delta is None else open_delta(delta)
        lines = [f"{self._claim(level) + '.':<72}lethe {self.version}"]
        if self.not_private:
            lines.append(self.not_private)
        lines += [f"NOT COVERED: {words}." for words in uncovered(self.findings)]
        lines.append(f"by  {self.name}    {self.guarantee.describe()}")
        lines.append(f"    unit       {UNITS_SAID[self.unit]}")
        label = "declared" if self.derivation is None else "computed"
        lines += [f"    {label:<8}   {line}" for line in derivation_lines(self)]
        listed = [finding for finding in self.findings if finding.status == "holds"]
        width = max((len(finding.name) for finding in listed), default=0)
        lines += [f"    {finding.evidence:<8}   {finding.name:<{width}}   {finding.words}" for finding in listed]
        if self.seal is not None:
            lines.append(f"    {'sealed' if self.seal.holds else 'NOT SEALED':<8}   {self.seal.words}")
        if level is not None and self.records is not None and (note := large_delta_note(level, self.records)) is not None:
            lines.append(note)
        return "\n".join(lines)

    def _claim(self, delta: float | None) -> str:
        cost = self.guarantee.describe() if delta is None else f"({shown(self.epsilon(delta))}, {delta:g})-DP"
        return f"{cost}, {relation_words(self.neighbours, self.unit)}, all that was released"

    def to_dict(self) -> dict[str, Any]:
        """The statement as plain data, for a file."""
        target = {} if self.target_delta is None else {"epsilon": plain_number(self.epsilon(self.target_delta)), "delta": self.target_delta}
        content: dict[str, Any] = {
            "kind": KIND,
            "name": self.name,
            **target,
            "guarantee": self.guarantee.to_dict(),
            "neighbours": self.neighbours,
            **({} if self.unit == "record" else {"unit": self.unit}),
            "findings": [finding.to_dict() for finding in self.findings],
            "citations": [asdict(citation) for citation in self.citations],
            "derivation": None if self.derivation is None else self.derivation.to_dict(),
            "records": self.records,
            "release_id": self.release_id,
            **({"seeded": True, "with_fresh_noise": self.planned.to_dict()} if self.seeded else {}),
            "lethe": self.version,
        }
        return content if self.seal is None else {**content, "seal": dict(self.seal.content)}

    @classmethod
    def from_dict(cls, content: dict[str, Any], *, source: str | None = None, key: PublicKey | None = None) -> Statement:
        """The statement that `to_dict` wrote. What it calls enforced is declared, unless a seal that is believed vouches for it.

        Whether its guarantee follows from its numbers, `lethe.accounting.recheck` says.

        Args:
            content: plain data.
            source: where it is from, for messages.
            key: whose seals are believed; None: this installation's and its team's.
        Raises:
            InputError: a key is missing or holds what no statement holds.
        """
        stated = _read(content, "seal", source=source)
        try:
            return stated._under(_read_seal(content["seal"], key)) if "seal" in content else stated.as_read()
        except RecursionError as error:
            raise no_such_document(KIND, error, source, _REMEDY) from error

    @classmethod
    def sealed(cls, record: ReleaseRecord) -> Statement:
        """The statement of a release that took place: with the hypotheses that its code enforced, and its signature."""
        # What is signed is what a reader will find: a number may be written as another kind of number.
        stated = _read(json.loads(to_json(record.stated.to_dict())))
        return replace(stated, seal=seal(replace(record, stated=stated)))

    def trusting(self, key: PublicKey | None) -> Statement:
        """The statement as read by somebody who trusts the seals of one key alone; None: of this installation and its team.

        With a seal that is believed it is the one that was signed; with another one, what it calls enforced is declared. One without a
        seal is as it was.
        """
        return self if self.seal is None else self._under(_read_seal(self.seal.content, key))

    def _under(self, seal: Seal[ReleaseRecord]) -> Statement:
        """The one that was signed, where the seal is believed and over this one; else this one as it is read."""
        read = replace(self.as_read(), seal=seal)
        assert read.seal is not None
        return replace(read.seal.record.stated, seal=read.seal) if read.seal.holds and read.seal.record is not None else read

    def as_read(self) -> Statement:
        """What a reader of its file may believe who believes no seal: nothing in it is enforced, but by the word of the file."""
        inner = self.derivation
        if inner is not None:
            inner = replace(inner, parts=tuple(part.as_read() for part in inner.parts))
        return replace(self, findings=tuple(map(as_told, self.findings)), derivation=inner, seal=None)


def _read(content: dict[str, Any], *besides: str, source: str | None = None) -> Statement:
    """The statement of a file as it tells itself, which nobody may believe yet; a seal in it is not looked at."""
    try:
        return _parsed(content, *besides)
    except (*UNREADABLE, HypothesisError) as error:
        raise no_such_document(KIND, error, source, _REMEDY) from error


def _read_seal(content: object, key: PublicKey | None) -> Seal[ReleaseRecord]:
    return read_seal(content, lambda signed: ReleaseRecord.from_statement(signed, _read), of="release", key=key)


def _parsed(content: dict[str, Any], *besides: str) -> Statement:
    if not isinstance(content, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"it is {type(content).__name__}")
    exactly(content, *_KEYS, besides=(*_BESIDES, *besides))
    if content["kind"] != KIND:
        raise ValueError(f"its kind is {content['kind']!r}")
    seeded, planned = content.get("seeded", False), content.get("with_fresh_noise")
    # 0 equals False and is not it.
    if not isinstance(seeded, bool) or (planned is None) is seeded:
        raise ValueError("seeded needs to be true, with what would hold with fresh noise")
    derivation, records = content["derivation"], content["records"]
    if records is not None and (type(records) is not int or records < 1):
        raise ValueError(f"records is {records!r}")
    stated = guarantee_from_dict(content["guarantee"])
    if seeded and not isinstance(stated, NotPrivate):
        raise ValueError(f"it is seeded, and claims {stated.describe()}")
    parsed = Statement(
        name=read_text(content["name"]),
        guarantee=stated if planned is None else guarantee_from_dict(planned),
        neighbours=read_text(content["neighbours"]),
        unit=read_text(content.get("unit", "record")),
        findings=read_findings(content["findings"]),
        citations=tuple(read_part(Citation, citation) for citation in content["citations"]),
        seeded=seeded,
        derivation=None if derivation is None else Derivation.from_dict(derivation, _parsed),
        records=records,
        target_delta=float(content["delta"]) if "delta" in content else None,
        release_id=read_text(content["release_id"]),
        version=read_text(content["lethe"]),
    )
    if ("epsilon" in content) != ("delta" in content):
        raise ValueError("it has one of epsilon and delta, and needs both or none")
    if parsed.target_delta is not None:
        claimed, proved = float(content["epsilon"]), parsed.epsilon(parsed.target_delta)
        # Other processors and libraries may round the last digits differently.
        if not math.isclose(claimed, proved, rel_tol=1e-9):
            raise ValueError(f"epsilon is {claimed:g}, but its guarantee gives {proved:g} at delta = {parsed.target_delta:g}")
    return parsed
