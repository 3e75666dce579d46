"""Refusal of runs with fields that no theorem knows, before anything is computed."""

from __future__ import annotations

from lethe.certificates.findings import Finding, fails
from lethe.run.known_fields import unknown_field
from lethe.run.participation import BatchSizes
from lethe.run.run import Run


def examine_words(run: Run, sizes: frozenset[BatchSizes]) -> tuple[Finding, ...]:
    """A failing finding if a field of the run has an unknown value; else empty.

    Args:
        run: the run.
        sizes: which batch sizes the theorem holds for.
    """
    unknown = unknown_field(run)
    if unknown is not None:
        return (
            fails(
                unknown.name,
                f"it needs {unknown.name} to be {unknown.needed}; it is {unknown.got}",
                source=unknown.name,
                remedy="take one that is known; nothing is known of what this one reveals.",
            ),
        )
    if run.batches.sizes not in sizes:
        design = run.batches.design
        return (
            fails(
                "batches",
                f"it needs to know how many records a batch may hold; {design} batches hold any number",
                source=f"batches.design = {design}",
                remedy="use composition, which needs no batch sizes, or a design that states them.",
            ),
        )
    return ()
