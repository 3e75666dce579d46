"""Whatever document of privacy a file holds: a certificate, a statement, a total or a bare guarantee."""

from __future__ import annotations

from typing import Any

from lethe.calculus.any_guarantee.stored import guarantee_from_dict
from lethe.calculus.base import Guarantee
from lethe.certificates.certificate import Certificate
from lethe.certificates.signing.keys import PublicKey
from lethe.certificates.statement import KIND, Statement
from lethe.documents.strict import refuse_other_kind
from lethe.errors import InputError

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
    refuse_other_kind(content, "certificate", source=source)
    try:
        return guarantee_from_dict(content)
    except (InputError, TypeError, ValueError, RecursionError) as error:
        known = "certificate, statement, total or guarantee"
        reason = f"not a {known}" if kind is None else f"not a {known}: {str(error).splitlines()[0].rstrip('.')}"
        raise InputError(
            f"{reason}.", source=source, remedy="give a file written by `lethe certify -o`, `lethe total -o`, or by save of a certificate."
        ) from error
