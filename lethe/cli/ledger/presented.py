"""What is reserved or settled from the command line: a file, or a number."""

from __future__ import annotations

from pathlib import Path

from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP
from lethe.documents.strict import read_document
from lethe.errors import InputError


def as_item(file: Path | None, *, epsilon: float | None, delta: float | None, rho: float | None, mu: float | None) -> object:
    """What a person presents: the content of a file, or a guarantee.

    Args:
        file: a document.
        epsilon, delta, rho, mu: of a guarantee in its place.
    Raises:
        InputError: there are several or none, or the file cannot be read.
    """
    given = [one for one in (file, epsilon, rho, mu) if one is not None]
    if len(given) != 1 or (epsilon is None) != (delta is None):
        raise InputError(
            "FILE, --epsilon with --delta, --rho, --mu: it needs one of these.",
            source="what is released",
            remedy="give the certificate of the planned run; or such as --epsilon 0.5 --delta 1e-6.",
        )
    if file is not None:
        return read_document(file)
    if rho is not None:
        return ZCDP(rho)
    if mu is not None:
        return GDP(mu)
    assert epsilon is not None
    assert delta is not None
    return ApproxDP(epsilon, delta)
