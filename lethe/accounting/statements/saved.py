"""Whatever document of privacy a file holds: a certificate, a statement, a total or a bare guarantee."""

from __future__ import annotations

import os
from typing import Any

from lethe.calculus.any_guarantee.stored import guarantee_from_dict
from lethe.calculus.base import Guarantee
from lethe.certificates.certificate import Certificate
from lethe.certificates.signing import PublicKey
from lethe.certificates.statement import KIND, Statement
from lethe.documents.strict import read_document
from lethe.errors import InputError
from lethe.run.run import Run

TOTAL = "total"
"""The kind of the document of a `Total`."""


def read_saved(content: dict[str, Any], *, source: str, key: PublicKey | None = None) -> Certificate | Statement | Guarantee:
    """The certificate, statement or guarantee that plain data holds; a total is read by `lethe.accounting.totals.total`.

    Args:
        content: what a file holds.
        source: where it is from, for messages.
        key: whose seals are believed; None: this installation's and its team's.
    Raises:
        InputError: it holds something else.
    """
    kind = content.get("kind")
    if kind == KIND:
        return Statement.from_dict(content, source=source, key=key)
    if "theorem" in content or "run" in content:
        return Certificate.from_dict(content, source=source, key=key)
    if "records" in content and "batches" in content:
        raise InputError(
            "a run says no epsilon; it needs a certificate.",
            source=source,
            remedy="certify it first: lethe certify RUN --delta D -o FILE.json.",
        )
    try:
        return guarantee_from_dict(content)
    except (InputError, TypeError, ValueError, RecursionError) as error:
        known = "certificate, statement, total or guarantee"
        reason = f"not a {known}" if kind is None else f"not a {known}: {str(error).splitlines()[0].rstrip('.')}"
        raise InputError(
            f"{reason}.", source=source, remedy="give a file written by `lethe certify -o`, `lethe total -o`, or by save of a certificate."
        ) from error


def load_run(path: str | os.PathLike[str]) -> Run:
    """The run in a file; of a certificate it says what to do with it instead.

    Raises:
        InputError: the file cannot be read, or does not hold a run.
    """
    content = read_document(path)
    kind = "certificate" if {"theorem", "guarantee", "run"} <= set(content) else content.get("kind")
    if kind in ("certificate", KIND, TOTAL):
        raise InputError(
            f"{os.fspath(path)} is a {kind}, not a run: it was certified already.",
            source=str(path),
            remedy=f"`lethe explain {os.fspath(path)}` says what it proves, and `lethe verify {os.fspath(path)}` whether it holds.",
        )
    return Run.from_document(content, source=str(path))
