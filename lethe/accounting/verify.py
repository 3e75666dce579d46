"""verify: does a certificate follow from its run, who sealed it, and does it belong to these weights?"""

from __future__ import annotations

import os
from typing import Any

from lethe.accounting.recheck import recheck, words_differ
from lethe.accounting.totals.composed import Total
from lethe.accounting.verification import Answer, Verification, belongs_to, sealed_by, within
from lethe.accounting.verify_others import load, named_weights, verify_statement, verify_total
from lethe.calculus.large_delta import large_delta_note, require_allowed
from lethe.calculus.upward_formatting import shown
from lethe.certificates.certificate import Certificate
from lethe.certificates.signing.keys import PublicKey
from lethe.certificates.statement import Statement
from lethe.certificates.weights.digest import tensors_digest
from lethe.certificates.weights.files import as_tensors
from lethe.documents.synonyms import in_other_words
from lethe.errors import InputError, require_finite


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
    allowed = require_allowed(allow_large_delta)
    limit = None if max_epsilon is None else require_finite("max_epsilon", max_epsilon, low=0.0)
    given = load(certificate, key=believed) if isinstance(certificate, str | os.PathLike) else certificate
    if isinstance(given, Total):
        return verify_total(given, key=believed, weights=weights, limit=limit, allow_large_delta=allowed)
    if isinstance(given, Statement):
        return verify_statement(given, key=believed, weights=weights, limit=limit, allow_large_delta=allowed)
    if not isinstance(given, Certificate):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"certificate: got {type(given).__name__}; it needs a Certificate or the file of one, a Statement or a Total.")
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
        sealed=sealed_by(judged.seal, "its run may have been typed by hand"),
        belongs=None if digest is None else belongs_to(judged.seal, digest, named_weights(weights)),
        within=None if limit is None else within(judged.epsilon, limit),
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
