"""verify: does a certificate follow from its run, who sealed it, and does it belong to these weights?"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lethe.accounting.recheck import recheck, recheck_statement, words_differ
from lethe.accounting.totals import TOTAL, Total
from lethe.calculus.domains import require_switch
from lethe.calculus.large_delta import is_large, large_delta_note, usual_delta
from lethe.calculus.upward_formatting import shown
from lethe.certificates.certificate import Certificate
from lethe.certificates.findings import Finding
from lethe.certificates.keys import PublicKey
from lethe.certificates.seal import Seal
from lethe.certificates.statement import KIND, Statement
from lethe.certificates.weights import as_tensors, tensors_digest
from lethe.documents.shortened import few_lines
from lethe.documents.strict import read_document
from lethe.errors import InputError, require_finite
from lethe.errors.names import in_other_words

_SOME_DELTA = 1e-5  # where neither a delta nor a number of records is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one question about a certificate.

    Args:
        question: in a few words.
        yes: the answer; whatever is not known is no.
        why: the reason.
    """

    question: str
    yes: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Verification:
    """The result of verifying a certificate, a statement or a total without trusting its file.

    Args:
        follows: that its numbers, hypotheses and words are those of its run; of a statement or a total that its numbers are those of its
            mechanism, or of its parts.
        private: that its epsilon is finite, and its delta below 1/records unless a larger one is allowed.
        sealed: that a key that is known here, or was given, signed what it says of its training.
        belongs: that the sealed training released these weights; None where no weights were given.
        within: that its epsilon is at most the one asked for; None where none was.
        declared: what it rests on that nothing proves, a line each.
        certificate: as this version of Lethe writes it; None where it does not follow.
        large_delta: whether its delta is 1/records or more, with which a record may be published whole.
        note: on words of another version of Lethe; empty where there is nothing to say.
    """

    follows: Answer
    private: Answer
    sealed: Answer
    belongs: Answer | None
    within: Answer | None
    declared: tuple[str, ...]
    certificate: Certificate | Statement | Total | None
    large_delta: bool = False
    note: str = ""

    def __repr__(self) -> str:
        said = ", ".join(f"{answer.question}: {'yes' if answer.yes else 'NO'}" for answer in self.answers)
        return f"Verification({said}; {len(self.declared)} declared)"

    def __str__(self) -> str:
        """The answers, a line each, and what is declared."""
        answers = [f"{'yes' if answer.yes else 'NO':<3}  {answer.question}: {answer.why}" for answer in self.answers]
        declared = [f"declared  {line}" for line in self.declared]
        return few_lines([*answers, *([self.note] if self.note else []), *declared], whole="to_dict()")

    @property
    def answers(self) -> tuple[Answer, ...]:
        """All that were asked for."""
        every = (self.follows, self.private, self.sealed, self.belongs, self.within)
        return tuple(answer for answer in every if answer is not None)

    @property
    def yes(self) -> bool:
        """Whether every answer is yes."""
        return all(answer.yes for answer in self.answers)

    def to_dict(self) -> dict[str, Any]:
        """As plain data: yes, the answers by name (null where not asked), and what is declared; `large_delta` is there if true."""
        named = {name: getattr(self, name) for name in ("follows", "private", "sealed", "belongs", "within")}
        answers = {name: None if one is None else {"yes": one.yes, "why": one.why} for name, one in named.items()}
        large = {"large_delta": True} if self.large_delta else {}
        return {"yes": self.yes, **large, **answers, "declared": list(self.declared), "note": self.note}


def sealed_by(seal: Seal[Any] | None, otherwise: str) -> Answer:
    """Whether a key that is believed sealed it; `otherwise` is what follows where nobody did."""
    if seal is None:
        return Answer(question="sealed", yes=False, why=f"by nobody: {otherwise}")
    return Answer(question="sealed", yes=seal.holds, why=seal.words)


def belongs_to(seal: Seal[Any] | None, digest: str, named: str) -> Answer:
    """Whether what was sealed released the weights of this digest, which are called `named`."""
    question, record = f"belongs to {named}", None if seal is None else seal.record
    if seal is None or record is None or not record.released:
        return Answer(question=question, yes=False, why="no seal says to which weights it belongs")
    found = next((one.name for one in record.released if one.sha256 == digest), None)
    if found is None:
        return Answer(question=question, yes=False, why=f"it is of weights with SHA-256 {record.released[0].sha256}; these have {digest}")
    if not seal.holds:
        return Answer(question=question, yes=False, why="its seal names them, but by no key that is known: anybody could have written that")
    return Answer(question=question, yes=True, why=f"{found}, SHA-256 {digest}")


def load(path: str | os.PathLike[str], *, key: PublicKey | None = None) -> Certificate | Statement | Total:
    """The certificate, statement or total in a file.

    Args:
        path: of the file.
        key: whose seals are believed; None: this installation's and its team's.
    Raises:
        InputError: the file cannot be read, or holds something else.
    """
    content, source = read_document(path), str(path)
    kind = {KIND: Statement, TOTAL: Total}.get(str(content.get("kind")), Certificate)
    return kind.from_dict(content, source=source, key=key)


@in_other_words
def verify(
    certificate: Certificate | Statement | Total | str | os.PathLike[str],
    *,
    weights: Any = None,
    key: PublicKey | str | os.PathLike[str] | None = None,
    max_epsilon: float | None = None,
    allow_large_delta: bool = False,
) -> Verification:
    """Check a certificate: from its run, by its seal, against weights; a statement from its mechanism's numbers, a total from its parts.

    Args:
        certificate: a certificate, a statement or a total, or the file of one.
        weights: a file of weights (.npz, .pt, .pth, .safetensors) or tensors by name, such as model.state_dict(); None: not asked.
        key: the public key, or its PEM file, of the one who must have sealed it; None: this installation's and its team's.
        max_epsilon: asks besides whether epsilon is at most this, >= 0.
        allow_large_delta: whether a certificate at a delta >= 1/records is meant. No seal of a certificate covers delta: whoever holds
            one can write it again at another delta, and near 1 every epsilon is 0.
    Returns:
        The answers. No is the answer to all that cannot be known.
    Raises:
        InputError: a file cannot be read or holds something else, or max_epsilon is out of its range.
        MissingExtraError: the weights need PyTorch, which is not installed.
    """
    believed = key if key is None or isinstance(key, PublicKey) else PublicKey.load(key)
    allowed = require_switch("allow_large_delta", allow_large_delta)
    limit = None if max_epsilon is None else require_finite("max_epsilon", max_epsilon, low=0.0)
    stated = load(certificate, key=believed) if isinstance(certificate, str | os.PathLike) else certificate
    if isinstance(stated, Total):
        facts = _of_total(stated, believed)
    elif isinstance(stated, Statement):
        facts = _of_statement(stated.trusting(believed))
    elif isinstance(stated, Certificate):  # pyright: ignore[reportUnnecessaryIsInstance]
        facts = _of_certificate(stated.trusting(believed))
    else:
        raise InputError(f"certificate: got {type(stated).__name__}; it needs a Certificate or the file of one, a Statement or a Total.")
    # Of an unknown number of records nobody can tell whether delta is small.
    large = facts.records is None or is_large(facts.delta, facts.records)
    belongs = within = None
    if weights is not None:
        # Without a seal nothing is looked for in the weights.
        digest = "" if facts.seal is None else tensors_digest(as_tensors(weights))
        belongs = belongs_to(facts.seal, digest, Path(weights).name if isinstance(weights, str | os.PathLike) else "these weights")
    if limit is not None:
        sign, at_most = "<=" if facts.epsilon <= limit else ">", facts.epsilon <= limit
        within = Answer(question=f"epsilon at most {limit:g}", yes=at_most, why=f"{shown(facts.epsilon)} {sign} {limit:g}")
    return Verification(
        follows=facts.follows,
        private=_private(facts, allowed=allowed or not large),
        sealed=facts.sealed,
        belongs=belongs,
        within=within,
        declared=facts.declared,
        certificate=facts.again,
        large_delta=large,
        note=facts.note,
    )


class _Facts(NamedTuple):
    """What the answers are made of: the numbers that hold, what was computed again (None where it does not follow), and the seal."""

    follows: Answer
    epsilon: float
    delta: float
    records: int | None
    sealed: Answer
    declared: tuple[str, ...]
    again: Certificate | Statement | Total | None
    seal: Seal[Any] | None = None
    note: str = ""


def _private(facts: _Facts, *, allowed: bool) -> Answer:
    why = f"epsilon = {shown(facts.epsilon)} at delta = {facts.delta:g}"
    if facts.records is None:
        why += "; of how many records nothing says, and delta needs to be below 1/records"
    elif (note := large_delta_note(facts.delta, facts.records)) is not None:
        why += f"; {note.removeprefix('note: ')}"
    return Answer(question="private", yes=facts.epsilon < float("inf") and facts.delta < 1.0 and allowed, why=why)


def _of_certificate(judged: Certificate) -> _Facts:
    again, why = None, "its numbers, hypotheses and words are those of its run"
    try:
        again = recheck(judged)
    except InputError as error:
        why = error.what
    return _Facts(
        follows=Answer(question="follows from its run", yes=again is not None, why=why),
        epsilon=judged.epsilon,
        delta=judged.delta,
        records=judged.run.records,
        sealed=sealed_by(judged.seal, "its run may have been typed by hand"),
        declared=_declared((again or judged).findings),
        again=again,
        seal=judged.seal,
        note="" if again is None else words_differ(judged, again),
    )


def _of_statement(judged: Statement) -> _Facts:
    again, why = None, "its guarantee is that of its mechanism with its numbers"
    try:
        again = recheck_statement(judged)
        if again.computed.stated:
            why = f"nothing computes the guarantee of {', '.join(again.computed.stated)}: it is taken as it is written"
    except InputError as error:
        why = error.what
    stated, delta = judged if again is None else again.statement, judged.target_delta
    if delta is None:
        delta = _SOME_DELTA if stated.records is None else usual_delta(stated.records)
    return _Facts(
        follows=Answer(question="follows from its mechanism", yes=again is not None and not again.computed.stated, why=why),
        epsilon=stated.epsilon(delta),
        delta=delta,
        records=stated.records,
        sealed=sealed_by(judged.seal, "its numbers may have been typed by hand"),
        declared=_declared(stated.findings if again is None else again.declared),
        again=None if again is None else stated,
        seal=judged.seal,
    )


def _of_total(total: Total, key: PublicKey | None) -> _Facts:
    again, why = None, "every part is what its document gives, and so is their composition"
    try:
        again = Total.from_dict(total.to_dict(), key=key)
        if again.written:
            why = f"nothing computes the guarantee of {', '.join(again.written)}: it is taken as it is written"
    except InputError as error:
        why = error.what
    stated = again or total
    unsealed = [part.name for part in stated.parts if not part.sealed]
    sealed = "every part by a key that is known" if not unsealed else f"not {', '.join(unsealed)}"
    return _Facts(
        follows=Answer(question="follows from its parts", yes=again is not None and not again.written, why=why),
        epsilon=stated.epsilon,
        delta=total.delta,
        records=total.records,
        sealed=Answer(question="sealed", yes=not unsealed, why=sealed),
        declared=stated.declared,
        again=again,
    )


def _declared(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(f"{one.name}: {one.words}" for one in findings if one.evidence == "declared")
