"""verify: does a certificate follow from its run, who sealed it, and does it belong to these weights?

`lethe.verify` and the command line call it with a file and, where asked, weights and a public key; reports show its answers.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lethe.accounting.recheck import recheck, recheck_statement, words_differ
from lethe.accounting.totals import TOTAL, Total
from lethe.calculus.domains import require_switch
from lethe.calculus.large_delta import is_large, large_delta_note, usual_delta
from lethe.calculus.upward_formatting import shown
from lethe.certificates.certificate import Certificate
from lethe.certificates.findings import Finding, holds, uncovered
from lethe.certificates.keys import PublicKey
from lethe.certificates.seal import Seal
from lethe.certificates.statement import KIND, Statement
from lethe.certificates.weights import as_tensors, tensors_digest
from lethe.documents.shortened import few_lines
from lethe.documents.strict import read_document
from lethe.errors import InputError, require_finite
from lethe.errors.names import in_other_words

_SOME_DELTA = 1e-5  # where neither a delta nor a number of records is known
Document = Certificate | Statement | Total


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one question about a certificate, and why; whatever is not known is no."""

    question: str
    yes: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Verification:
    """The result of verifying a certificate, a statement or a total without trusting its file.

    Args:
        follows: that its numbers, hypotheses and words are those of its run; of a statement or a total that its numbers are those of its
            mechanism, or of its parts.
        private: that its epsilon is finite, its delta below 1/records unless a larger one is allowed, and that the fit saw nothing that
            learned from the same records without privacy: an earlier step of its pipeline, or a search.
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
    certificate: Document | None
    large_delta: bool = False
    note: str = ""

    def __repr__(self) -> str:
        answers = ", ".join(f"{answer.question}: {'yes' if answer.yes else 'NO'}" for answer in self.answers)
        return f"Verification({answers}; {len(self.declared)} declared)"

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
        answers = {name: None if answer is None else {"yes": answer.yes, "why": answer.why} for name, answer in named.items()}
        large = {"large_delta": True} if self.large_delta else {}
        return {"yes": self.yes, **large, **answers, "declared": list(self.declared), "note": self.note}


def _belongs_to(seal: Seal[Any] | None, digest: str, named: str) -> Answer:
    """Whether what was sealed released the weights of this digest, which are called `named`."""
    question, record = f"belongs to {named}", None if seal is None else seal.record
    if seal is None or record is None or not record.released:
        return Answer(question=question, yes=False, why="no seal says to which weights it belongs")
    name = next((release.name for release in record.released if release.sha256 == digest), None)
    if name is None:
        return Answer(question=question, yes=False, why=f"it is of weights with SHA-256 {record.released[0].sha256}; these have {digest}")
    if not seal.holds:
        return Answer(question=question, yes=False, why="its seal names them, but by no key that is known: anybody could have written that")
    return Answer(question=question, yes=True, why=f"{name}, SHA-256 {digest}")


def load(path: str | os.PathLike[str], *, key: PublicKey | None = None) -> Document:
    """The certificate, statement or total in the file at `path`; `key` is whose seals are believed, None: this installation's, its team's.

    Raises:
        InputError: the file cannot be read, or holds something else.
    """
    content, source = read_document(path), str(path)
    kind = {KIND: Statement, TOTAL: Total}.get(str(content.get("kind")), Certificate)
    return kind.from_dict(content, source=source, key=key)


@in_other_words  # takes American spellings of arguments, and names what another library's argument is called here
def verify(
    certificate: Document | str | os.PathLike[str],
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
    if not isinstance(stated, Certificate | Statement | Total):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"certificate: got {type(stated).__name__}; it needs a Certificate or the file of one, a Statement or a Total.")
    stated = stated if isinstance(stated, Total) else stated.trusting(believed)
    follows, recomputed, declared = _computed_again(stated, believed)
    seal = None if isinstance(stated, Total) else stated.seal
    leaks = uncovered(holds("", line, evidence="declared") for line in declared)
    epsilon, delta, records = _numbers(stated, recomputed)
    # Of an unknown number of records nobody can tell whether delta is small.
    large = records is None or is_large(delta, records)
    why = "; ".join((*leaks, f"epsilon = {shown(epsilon)} at delta = {delta:g}"))
    if records is None:
        why += "; of how many records nothing says, and delta needs to be below 1/records"
    elif (note := large_delta_note(delta, records)) is not None:
        why += f"; {note.removeprefix('note: ')}"
    belongs = within = None
    private = epsilon < float("inf") and delta < 1.0
    if weights is not None:
        # Without a seal nothing is looked for in the weights.
        digest = "" if seal is None else tensors_digest(as_tensors(weights))
        belongs = _belongs_to(seal, digest, Path(weights).name if isinstance(weights, str | os.PathLike) else "these weights")
    if limit is not None:
        sign, at_most = "<=" if epsilon <= limit else ">", epsilon <= limit
        within = Answer(question=f"epsilon at most {limit:g}", yes=at_most, why=f"{shown(epsilon)} {sign} {limit:g}")
    return Verification(
        follows=follows,
        private=Answer(question="private", yes=private and not leaks and (allowed or not large), why=why),
        sealed=_sealed(stated, recomputed),
        belongs=belongs,
        within=within,
        declared=declared,
        certificate=recomputed,
        large_delta=large,
        note=words_differ(stated, recomputed) if isinstance(stated, Certificate) and isinstance(recomputed, Certificate) else "",
    )


_FOLLOWS = {
    Certificate: ("follows from its run", "its numbers, hypotheses and words are those of its run"),
    Statement: ("follows from its mechanism", "its guarantee is that of its mechanism with its numbers"),
    Total: ("follows from its parts", "every part is what its document gives, and so is their composition"),
}
_UNSEALED = {Certificate: "its run may have been typed by hand", Statement: "its numbers may have been typed by hand"}


def _computed_again(stated: Document, key: PublicKey | None) -> tuple[Answer, Document | None, tuple[str, ...]]:
    """Whether its numbers follow; what they follow as, None where they do not; and what it rests on that nothing proves."""
    question, why = _FOLLOWS[type(stated)]
    declared, written = stated.declared if isinstance(stated, Total) else _declared(stated.findings), ()
    recomputed: Document | None = None
    try:
        if isinstance(stated, Total):
            recomputed = Total.from_dict(stated.to_dict(), key=key)
            declared, written = recomputed.declared, recomputed.written
        elif isinstance(stated, Statement):
            rechecked = recheck_statement(stated)
            recomputed, declared, written = rechecked.statement, _declared(rechecked.declared), rechecked.computed.stated
        else:
            recomputed = recheck(stated)
            declared = _declared(recomputed.findings)
    except InputError as error:
        why = error.what
    if written:
        why = f"nothing computes the guarantee of {', '.join(written)}: it is taken as it is written"
    return Answer(question=question, yes=recomputed is not None and not written, why=why), recomputed, declared


def _numbers(stated: Document, recomputed: Document | None) -> tuple[float, float, int | None]:
    """The epsilon that holds, its delta, and of how many records."""
    if isinstance(stated, Certificate):
        return stated.epsilon, stated.delta, stated.run.records
    if isinstance(stated, Total):
        return recomputed.epsilon if isinstance(recomputed, Total) else stated.epsilon, stated.delta, stated.records
    statement, delta = recomputed if isinstance(recomputed, Statement) else stated, stated.target_delta
    if delta is None:
        delta = _SOME_DELTA if statement.records is None else usual_delta(statement.records)
    return statement.epsilon(delta), delta, statement.records


def _sealed(stated: Document, recomputed: Document | None) -> Answer:
    if isinstance(stated, Total):
        unsealed = [part.name for part in (recomputed if isinstance(recomputed, Total) else stated).parts if not part.sealed]
        words = f"not {', '.join(unsealed)}" if unsealed else "every part by a key that is known"
        return Answer(question="sealed", yes=not unsealed, why=words)
    if stated.seal is None:
        return Answer(question="sealed", yes=False, why=f"by nobody: {_UNSEALED[type(stated)]}")
    return Answer(question="sealed", yes=stated.seal.holds, why=stated.seal.words)


def _declared(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(f"{finding.name}: {finding.words}" for finding in findings if finding.evidence == "declared")
