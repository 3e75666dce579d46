"""Statements of files: what nothing shows is told, and numbers too small for floating point are not zero."""

from __future__ import annotations

from typing import Any

import pytest

import lethe
from lethe.accounting.statements.recheck import recheck_statement
from lethe.certificates.statement import Statement
from lethe.mechanisms.base import gaussian_guarantee

_MEAN = gaussian_guarantee(2.0, 4.0)


def written(guarantee: lethe.Guarantee, rule: str | None, *parts: dict[str, Any], numbers: dict[str, Any]) -> dict[str, Any]:
    """A file that somebody typed, without a single hypothesis."""
    return {
        "kind": "statement",
        "name": rule or "a sum",
        "guarantee": guarantee.to_dict(),
        "neighbours": "replace_one",
        "findings": [],
        "citations": [],
        "derivation": None if rule is None else {"kind": rule, "parameters": numbers, **({"parts": list(parts)} if parts else {})},
        "records": None,
        "release_id": "",
        "lethe": lethe.__version__,
    }


def mean_of_rows() -> dict[str, Any]:
    return written(_MEAN, "mean of rows", numbers={"norm": 1.0, "noise_std": 4.0})


def declared(content: dict[str, Any]) -> str:
    return "\n".join(f"{one.name}: {one.words}" for one in recheck_statement(Statement.from_dict(content)).declared)


@pytest.mark.parametrize("seeded", [0, 0.0, 1])
def test_seeded_is_true_or_false_and_no_number(seeded: float) -> None:
    content = {**mean_of_rows(), "guarantee": {"kind": "not_private"}, "with_fresh_noise": _MEAN.to_dict(), "seeded": seeded}
    with pytest.raises(lethe.InputError, match="seeded needs to be true"):
        Statement.from_dict(content)
