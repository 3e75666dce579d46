"""The answers for statements and totals: whether they follow from the numbers of their mechanisms, or from their parts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lethe.accounting.statements.recheck import recheck_statement
from lethe.accounting.statements.saved import TOTAL
from lethe.accounting.totals.composed import Total
from lethe.accounting.verification import Answer, Verification, belongs_to, sealed_by, within
from lethe.calculus.large_delta import is_large, usual_delta
from lethe.calculus.upward_formatting import shown
from lethe.certificates.certificate import Certificate
from lethe.certificates.signing.keys import PublicKey
from lethe.certificates.statement import KIND, Statement
from lethe.certificates.weights.digest import tensors_digest
from lethe.certificates.weights.files import as_tensors
from lethe.documents.strict import read_document
from lethe.errors import InputError

_SOME_DELTA = 1e-5  # where neither a delta nor a number of records is known


def load(path: str | os.PathLike[str], *, key: PublicKey | None = None) -> Certificate | Statement | Total:
    """The certificate, statement or total in a file.

    Args:
        path: of the file.
        key: whose seals are believed; None: this installation's and its team's.
    Raises:
        InputError: the file cannot be read, or holds something else.
    """
    content, source = read_document(path), str(path)
    if content.get("kind") == KIND:
        return Statement.from_dict(content, source=source, key=key)
    if content.get("kind") == TOTAL:
        return Total.from_dict(content, source=source, key=key)
    return Certificate.from_dict(content, source=source, key=key)


def verify_statement(
    statement: Statement, *, key: PublicKey | None, weights: Any, limit: float | None, allow_large_delta: bool
) -> Verification:
    """The answers for a statement.

    Args:
        statement: as it was read.
        key: whose seal is believed; None: this installation's and its team's.
        weights: a file or tensors, if any; of a statement without a seal they are not looked at.
        limit: the largest epsilon that is asked for, if any.
        allow_large_delta: whether a delta >= 1/records is meant.
    """
    judged = statement.trusting(key)
    again, why = None, "its guarantee is that of its mechanism with its numbers"
    try:
        again = recheck_statement(judged)
        if again.stated:
            why = f"nothing computes the guarantee of {', '.join(again.stated)}: it is taken as it is written"
    except InputError as error:
        why = error.what
    stated = judged if again is None else again.statement
    delta, records = judged.target_delta, stated.records
    if delta is None:
        delta = _SOME_DELTA if records is None else usual_delta(records)
    # Of an unknown number of records nobody can tell whether delta is small.
    large = records is None or is_large(delta, records)
    epsilon = stated.epsilon(delta)
    findings = again.declared if again is not None else tuple(one for one in stated.findings if one.evidence == "declared")
    return Verification(
        follows=Answer(question="follows from its mechanism", yes=again is not None and not again.stated, why=why),
        private=_private(epsilon, delta, large, allow_large_delta, known=records is not None),
        sealed=sealed_by(judged.seal, "its numbers may have been typed by hand"),
        belongs=_belongs(judged, weights),
        within=None if limit is None else within(epsilon, limit),
        declared=tuple(f"{one.name}: {one.words}" for one in findings),
        certificate=None if again is None else again.statement,
        large_delta=large,
    )


def verify_total(total: Total, *, key: PublicKey | None, weights: Any, limit: float | None, allow_large_delta: bool) -> Verification:
    """The answers for a total; the others as of `verify_statement`.

    Args:
        total: as it was read.
        key: whose seals are believed.
        weights, limit, allow_large_delta: as of `verify_statement`.
    """
    again, why = None, "every part is what its document gives, and so is their composition"
    try:
        again = Total.from_dict(total.to_dict(), key=key)
        if again.written:
            why = f"nothing computes the guarantee of {', '.join(again.written)}: it is taken as it is written"
    except InputError as error:
        why = error.what
    large = total.large_delta or total.records is None
    unsealed = [part.name for part in (again or total).parts if not part.sealed]
    sealed = "every part by a key that is known" if not unsealed else f"not {', '.join(unsealed)}"
    return Verification(
        follows=Answer(question="follows from its parts", yes=again is not None and not again.written, why=why),
        private=_private((again or total).epsilon, total.delta, large, allow_large_delta, known=total.records is not None),
        sealed=Answer(question="sealed", yes=not unsealed, why=sealed),
        belongs=_belongs(None, weights),
        within=None if limit is None else within((again or total).epsilon, limit),
        declared=(again or total).declared,
        certificate=again,
        large_delta=large,
    )


def _private(epsilon: float, delta: float, large: bool, allowed: bool, *, known: bool) -> Answer:
    told = "; delta is 1/records or more" if known else "; of how many records nothing says, and delta needs to be below 1/records"
    why = f"epsilon = {shown(epsilon)} at delta = {delta:g}" + (told if large else "")
    return Answer(question="private", yes=epsilon < float("inf") and delta < 1.0 and (allowed or not large), why=why)


def _belongs(statement: Statement | None, weights: Any) -> Answer | None:
    if weights is None:
        return None
    if statement is None or statement.seal is None:
        return belongs_to(None, "", named_weights(weights))
    return belongs_to(statement.seal, tensors_digest(as_tensors(weights)), named_weights(weights))


def named_weights(weights: object) -> str:
    """What weights are called in an answer: their file, if they are one."""
    return Path(weights).name if isinstance(weights, str | os.PathLike) else "these weights"
