"""What a private search rests on: the statement of `lethe.mechanisms.selection`, with what the code of the search makes true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lethe.certificates.findings import Finding, holds
from lethe.certificates.statement import Statement
from lethe.estimators.search.candidates import ParameterCandidate
from lethe.estimators.search.tries import Try


def search_statement(stated: Statement, one: Try, chosen: Sequence[ParameterCandidate], *, scored: int, tries: float) -> Statement:
    """The same guarantee, with findings of its own.

    Args:
        stated: of the choice among tries.
        one: what a try may cost.
        chosen: all candidates.
        scored: m, the records set aside.
        tries: the mean number of tries.
    """
    findings = (
        holds("one fit", f"at most {one.guarantee.describe()}, calibrated to it; its own certificate was compared", evidence="checked"),
        *_about_steps(max(len(candidate.gaussian) for candidate in chosen)),
        holds("one score", f"a mean of {scored} numbers in [0, 1] with noise: {one.guarantee.describe()}", evidence="enforced"),
        holds(
            "disjoint records",
            "a fit and its score see different records, by a split that no record has a part in: one try costs the worse of the two",
            evidence="enforced",
        ),
        holds("number of tries", f"random and secret, {tries:.6g} on average, drawn apart from the data", evidence="enforced"),
        holds("noise of each try", "every fit and every score draws its own", evidence="enforced"),
    )
    return replace(stated, name=f"the best of a random number of tries among {len(chosen)} candidates, scored privately", findings=findings)


def _about_steps(most: int) -> list[Finding]:
    """Of pipelines with so many private steps; nothing of a model alone."""
    if most == 1:
        return []
    return [
        holds(
            "steps",
            f"of a fit at most {most} learn from records, each with a part of its guarantee that was fixed before; the parts add up to it",
            evidence="checked",
        ),
        holds("rows", "every step transforms a row by itself, with numbers that were released", evidence="enforced"),
    ]
