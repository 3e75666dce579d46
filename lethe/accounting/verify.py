"""verify: does a certificate follow from its run, who sealed it, and does it belong to these weights?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lethe.accounting.recheck import recheck, words_differ
from lethe.calculus.large_delta import large_delta_note, require_allowed
from lethe.calculus.upward_formatting import shown
from lethe.certificates.certificate import Certificate
from lethe.certificates.signing import PublicKey
from lethe.certificates.weights import as_tensors, tensors_digest
from lethe.errors import InputError, require_finite


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of verifying a certificate without trusting its file.

    Args:
        follows: that its numbers, hypotheses and words are those of its run.
        private: that its epsilon is finite, and its delta below 1/records unless a larger one is allowed.
        sealed: that a key that is known here, or was given, signed what it says of its training.
        belongs: that the sealed training released these weights; None where no weights were given.
        within: that its epsilon is at most the one asked for; None where none was.
        declared: what it rests on that nothing proves, a line each.
        certificate: as this version of Lethe writes it; None where it does not follow from its run.
        large_delta: whether its delta is 1/records or more, with which a record may be published whole.
        note: on words of another version of Lethe; empty where there is nothing to say.
    """

    follows: Answer
    private: Answer
    sealed: Answer
    belongs: Answer | None
    within: Answer | None
    declared: tuple[str, ...]
    certificate: Certificate | None
    large_delta: bool = False
    note: str = ""

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


def verify(
    certificate: Certificate | str | os.PathLike[str],
    *,
    weights: Any = None,
    key: PublicKey | str | os.PathLike[str] | None = None,
    max_epsilon: float | None = None,
    allow_large_delta: bool = False,
) -> Verification:
    """Check a certificate: from its run, by its seal, against weights.

    Args:
        certificate: a certificate, or the file of one.
        weights: a file of weights (.npz, .pt, .pth, .safetensors) or tensors by name, such as model.state_dict(); None: not asked.
        key: the public key, or its PEM file, of the one who must have sealed it; None: this installation's and its team's.
        max_epsilon: asks besides whether epsilon is at most this, >= 0.
        allow_large_delta: whether a certificate at a delta >= 1/records is meant. No seal covers delta: whoever holds a certificate can
            write it again at another one, and near 1 every epsilon is 0.
    Returns:
        The answers. No is the answer to all that cannot be known.
    Raises:
        InputError: a file cannot be read or holds something else, or max_epsilon is out of its range.
        MissingExtraError: the weights need PyTorch, which is not installed.
    """
    believed = key if key is None or isinstance(key, PublicKey) else PublicKey.load(key)
    allowed = require_allowed(allow_large_delta)
    limit = None if max_epsilon is None else require_finite("max_epsilon", max_epsilon, low=0.0)
    given = Certificate.load(certificate) if isinstance(certificate, str | os.PathLike) else certificate
    if not isinstance(given, Certificate):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"certificate: got {type(given).__name__}; it needs a Certificate or the file of one.")
    digest = None if weights is None else tensors_digest(as_tensors(weights))
    judged = given.trusting(believed)
    again, why = None, "its numbers, hypotheses and words are those of its run"
    try:
        again = recheck(judged)
    except InputError as error:
        why = error.what
    return Verification(
        follows=Answer(question="follows from its run", yes=again is not None, why=why),
        private=_private(judged, allowed),
        sealed=_sealed(judged),
        belongs=None if digest is None else _belongs(judged, digest, _named(weights)),
        within=None if limit is None else _within(judged, limit),
        declared=tuple(f"{one.name}: {one.words}" for one in (again or judged).findings if one.evidence == "declared"),
        certificate=again,
        large_delta=judged.large_delta,
        note="" if again is None else words_differ(judged, again),
    )


def _private(certificate: Certificate, allow_large_delta: bool) -> Answer:
    why = f"epsilon = {shown(certificate.epsilon)} at delta = {certificate.delta:g}"
    if (told := large_delta_note(certificate.delta, certificate.run.records)) is not None:
        why += f"; {told.removeprefix('note: ')}"
    allowed = allow_large_delta or not certificate.large_delta
    return Answer(question="private", yes=certificate.epsilon < float("inf") and allowed, why=why)


def _sealed(certificate: Certificate) -> Answer:
    seal = certificate.seal
    if seal is None:
        return Answer(question="sealed", yes=False, why="by nobody: its run may have been typed by hand")
    return Answer(question="sealed", yes=seal.holds, why=seal.words)


def _belongs(certificate: Certificate, digest: str, named: str) -> Answer:
    question, seal = f"belongs to {named}", certificate.seal
    released = () if seal is None or seal.record is None else seal.record.released
    if not released:
        return Answer(question=question, yes=False, why="no seal says to which weights it belongs")
    assert seal is not None
    found = next((one.name for one in released if one.sha256 == digest), None)
    if found is None:
        return Answer(question=question, yes=False, why=f"it is of weights with SHA-256 {released[0].sha256}; these have {digest}")
    if not seal.holds:
        return Answer(question=question, yes=False, why="its seal names them, but by no key that is known: anybody could have written that")
    return Answer(question=question, yes=True, why=f"{found}, SHA-256 {digest}")


def _within(certificate: Certificate, limit: float) -> Answer:
    epsilon = certificate.epsilon
    sign = "<=" if epsilon <= limit else ">"
    return Answer(question=f"epsilon at most {limit:g}", yes=epsilon <= limit, why=f"{shown(epsilon)} {sign} {limit:g}")


def _named(weights: object) -> str:
    return Path(weights).name if isinstance(weights, str | os.PathLike) else "these weights"
