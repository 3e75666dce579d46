"""Certificate: what was proved of a run, by which theorem, from which hypotheses, and why not by another.

`lethe.certify` and every training make it; users print, save and load it, `lethe verify`, the ledger and the report read it. It holds run,
guarantee, theorem and findings, so that all can be computed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_args

from lethe.calculus.any_guarantee import guarantee_from_dict
from lethe.calculus.guarantees import Guarantee
from lethe.calculus.large_delta import is_large, large_delta_note
from lethe.calculus.upward_formatting import shown
from lethe.certificates.claims import UNREADABLE, Claims, no_such_document
from lethe.certificates.findings import FRESH_NOISE, Finding, as_said, as_written, uncovered
from lethe.certificates.keys import PublicKey
from lethe.certificates.parts import (
    UNITS_SAID,
    Citation,
    OtherStatus,
    OtherTheorem,
    StepConstant,
    exactly,
    others_counted,
    others_listed,
    plain_number,
    read_findings,
    read_part,
    read_text,
    relation_words,
)
from lethe.certificates.records import TrainingRecord
from lethe.certificates.seal import Seal, read_seal, seal
from lethe.documents.shortened import html_table, page_in_few_lines
from lethe.documents.strict import refuse_other_kind
from lethe.documents.version import __version__
from lethe.errors import InputError
from lethe.run.effective_loss import clipped_along_a_line
from lethe.run.known_fields import require_run
from lethe.run.run import Run

_A_HAIR = 1.001
_KEYS = frozenset(
    ["epsilon", "delta", "theorem", "guarantee", "neighbours", "release", "lipschitz", "hypotheses", "others", "citations", "run", "lethe"]
)  # of a file; "seal", "large_delta" and "unit" besides
_RELEASES = {"last": "last iterate only", "all": "every iterate"}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Certificate(Claims):
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
        seal: of the training record that the run is from; None where the run was typed or read, and nobody vouches for it.
        under_replace_one: computes, when `explain` asks, the epsilon of a run at a delta for that relation; not in the file.
    """

    run: Run
    delta: float
    epsilon: float
    theorem: str
    guarantee: Guarantee
    lipschitz: StepConstant | None
    findings: tuple[Finding, ...]
    others: tuple[OtherTheorem, ...]
    citations: tuple[Citation, ...]
    version: str = __version__
    seal: Seal[TrainingRecord] | None = None
    under_replace_one: Callable[[Run, float], float | None] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Refuse a run that says what nobody knows: no page could say what the certificate is about."""
        require_run(self.run, correlated=True)

    def __repr__(self) -> str:
        large = " (delta >= 1/records)" if self.large_delta else ""
        return f"Certificate({self._claim}{large}, by {self.theorem}, run {self.run.run_id})"

    def __str__(self) -> str:
        """What `explain` says, in few lines: what was declared stays, of what was checked or enforced only the number."""
        return page_in_few_lines(self.explain().splitlines(), head=2)

    @property
    def large_delta(self) -> bool:
        r"""Whether $\delta \ge 1/n$, with which a record may be published whole."""
        return is_large(self.delta, self.run.records)

    @property
    def records(self) -> int:
        """n, as the run states it."""
        return self.run.records

    def explain(self, *, every: bool = False) -> str:
        """The certificate as text for a person: what holds, by what and from what.

        Args:
            every: also what the best attack may reach (`attack_rates`), and why each other theorem was not used. Where nothing is proved
                the latter is told in any case.
        """
        run = self.run
        lines = [f"{self._claim + '.':<72}lethe {self.version}, run {run.run_id}, {run.total_steps} steps"]
        if self.epsilon == float("inf"):
            lines.append(self.not_private)
        lines += [f"NOT COVERED: {words}." for words in uncovered(self.findings)]
        step = f"Lipschitz constant of a step {self.lipschitz.constant:.7g} ({self.lipschitz.certificate})" if self.lipschitz else ""
        lines.append("    ".join(part for part in (f"by  {self.theorem}", step, self.guarantee.describe()) if part))
        lines.append(f"    unit       {UNITS_SAID[run.unit]}")
        lines += self._replaced()
        lines += str(self.attack_rates()).splitlines() if every and self.epsilon < float("inf") else []
        listed = [finding for finding in self.findings if finding is not self._seeded]  # that one has its line already
        width = max((len(finding.name) for finding in listed), default=0)
        lines += [f"    {_label(finding):<8}   {finding.name:<{width}}   {finding.words}" for finding in listed]
        if self.seal is not None:
            lines.append(f"    {'sealed' if self.seal.holds else 'NOT SEALED':<8}   {self.seal.words}")
        lines += others_listed(self.others) if every or self.epsilon == float("inf") else others_counted(self.others)
        if (note := large_delta_note(self.delta, run.records)) is not None:
            lines.append(note)
        if self.lipschitz and _clips_for_want_of_a_bound(run):
            lines.append(
                f"note: clipping may act, and such a step may expand, because nothing bounds the gradients of this {run.loss.summary} by "
                f"clip_norm = {run.clip_norm:.6g}. If none is longer, say so (loss.gradient_bound): the certificate can only get smaller."
            )
        return "\n".join(lines)

    def _replaced(self) -> list[str]:
        """A line with the epsilon of the same run for the relation that costs most; none where that is its own, or nothing is proved."""
        if self.run.neighbours == "replace_one" or self.under_replace_one is None or self.epsilon == float("inf"):
            return []
        epsilon = self.under_replace_one(self.run, self.delta)
        named = f"neighbours=replace_one: another {self.run.unit} in the place of one"
        return [] if epsilon is None else [f"    compare    epsilon would be {shown(epsilon)} under {named}"]

    def _repr_html_(self) -> str:
        """The claim, what it rests on and how each line is known, as a table for notebooks."""
        sealed = "not sealed: nobody vouches for its run" if self.seal is None else self.seal.words
        rows = [("proved by", self.theorem), ("of", f"run {self.run.run_id}, {self.run.total_steps} steps"), ("seal", sealed)]
        rows += [(_label(finding), f"{finding.name}: {finding.words}") for finding in self.findings]
        return html_table(self.not_private or self._claim, (), rows)

    @property
    def _claim(self) -> str:
        relation = relation_words(self.run.neighbours, self.run.unit)
        return f"({shown(self.epsilon)}, {self.delta:g})-DP, {relation}, {_RELEASES[self.run.release]}"

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

    def to_dict(self) -> dict[str, Any]:
        """The certificate as plain data that JSON can hold; an infinite epsilon is the text "inf". `large_delta` is there if true, and
        `seal` where there is one.
        """
        content: dict[str, Any] = {
            "epsilon": plain_number(self.epsilon),
            "delta": self.delta,
            **({"large_delta": True} if self.large_delta else {}),
            "theorem": self.theorem,
            "guarantee": self.guarantee.to_dict(),
            "neighbours": self.run.neighbours,
            "release": self.run.release,
            **({} if self.run.unit == "record" else {"unit": self.run.unit}),
            "lipschitz": None if self.lipschitz is None else asdict(self.lipschitz),
            "hypotheses": [finding.to_dict() for finding in self.findings],
            "others": [{**asdict(alternative), "epsilon": plain_number(alternative.epsilon)} for alternative in self.others],
            "citations": [asdict(citation) for citation in self.citations],
            "run": self.run.to_document(),
            "lethe": self.version,
        }
        return content if self.seal is None else {**content, "seal": dict(self.seal.content)}

    @classmethod
    def from_dict(cls, content: dict[str, Any], *, source: str | None = None, key: PublicKey | None = None) -> Certificate:
        """The certificate that `to_dict` wrote. What it calls enforced is declared, unless a seal that is believed vouches for it.

        Args:
            content: plain data.
            source: where it is from, for messages.
            key: whose seals are believed; None: this installation's and its team's.
        Raises:
            InputError: a key is missing or holds what no certificate holds.
        """
        refuse_other_kind(content, "certificate", source=source)
        try:
            loaded = _parsed(cls, content, key)
            _refuse_contradictions(loaded, content)
        except UNREADABLE as error:
            remedy = "give a file written by `lethe certify -o` or Certificate.save."
            raise no_such_document("certificate", error, source, remedy) from error
        return loaded.trusting(key)

    def sealed(self, record: TrainingRecord) -> Certificate:
        """The certificate of a training that took place: with the hypotheses that its code enforced, and its signature."""
        if record.run != self.run:
            raise InputError(f"record: it is of run {record.run.run_id}, not of run {self.run.run_id}.")
        return replace(self, findings=record.findings(self.findings), seal=seal(record))

    def trusting(self, key: PublicKey | None) -> Certificate:
        """The certificate as read by somebody who trusts the seals of one key alone; None: of this installation and its team.

        What it calls enforced is declared unless its seal is believed and says so.
        """
        seal = None if self.seal is None else _read_seal(self.seal.content, self.run, key)
        record = seal.record if seal is not None and seal.holds else None
        written = tuple(map(as_written, self.findings))
        trusted = tuple(finding if record is not None and record.vouches_for(finding) else as_said(finding) for finding in written)
        return replace(self, findings=trusted, seal=seal)


def _parsed(cls: type[Certificate], content: dict[str, Any], key: PublicKey | None) -> Certificate:
    """The certificate of the content of a file, whose keys and types are checked."""
    exactly(content, *_KEYS, besides=("seal", "large_delta", "unit"))
    lipschitz, run = content["lipschitz"], Run.from_document(content["run"])
    return cls(
        run=run,
        delta=float(content["delta"]),
        epsilon=float(content["epsilon"]),
        theorem=read_text(content["theorem"]),
        guarantee=guarantee_from_dict(content["guarantee"]),
        lipschitz=None if lipschitz is None else read_part(StepConstant, lipschitz),
        findings=read_findings(content["hypotheses"]),
        others=tuple(read_part(OtherTheorem, alternative) for alternative in content["others"]),
        citations=tuple(read_part(Citation, citation) for citation in content["citations"]),
        version=read_text(content["lethe"]),
        seal=_read_seal(content["seal"], run, key) if "seal" in content else None,
    )


def _read_seal(content: object, run: Run, key: PublicKey | None) -> Seal[TrainingRecord]:
    seal = read_seal(content, TrainingRecord.from_statement, of="training", key=key)
    if seal.record is not None and seal.record.run != run:
        return seal.flawed("over another run than the certificate's")
    return seal


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
    for name, from_run in (("neighbours", loaded.run.neighbours), ("release", loaded.run.release)):
        if content[name] != from_run:
            raise ValueError(f"{name} is {content[name]!r}, but its run says {from_run!r}")
    if content.get("unit", "record") != loaded.run.unit:
        raise ValueError(f"unit is {content.get('unit', 'record')!r}, but its run says {loaded.run.unit!r}")
    for alternative in loaded.others:
        if alternative.status not in get_args(OtherStatus):
            raise ValueError(f"the status of {alternative.theorem!r} is {alternative.status!r}")


def _clips_for_want_of_a_bound(run: Run) -> bool:
    """Whether a word on how long gradients get would spare the constant of a clipped step: none is known, or one a hair above the norm."""
    if not run.clips or run.clip_norm is None or run.clip_method != "clip" or (clipped_along_a_line(run) and not run.clips_in_groups):
        return False
    bound = run.loss.known_gradient_bound
    return bound is None or run.clip_norm < bound <= run.clip_norm * _A_HAIR


def _label(finding: Finding) -> str:
    return finding.evidence if finding.status == "holds" else "FAILS"
