"""Verification: the answers to whether a certificate holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lethe.accounting.totals import Total
from lethe.certificates.certificate import Certificate
from lethe.certificates.seal import Seal
from lethe.certificates.statement import Statement
from lethe.documents.shortened import few_lines


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
