"""Findings about fields that many theorems share, before anything is computed: unknown words, noise, groups, and arithmetic."""

from __future__ import annotations

import numpy as np

from lethe.certificates.findings import Finding, fails, holds
from lethe.run.known_fields import unknown_field
from lethe.run.participation import BatchSizes, Participation
from lethe.run.precision import Precision
from lethe.run.regularisers import NuclearNorm
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


def examine_groups(run: Run) -> tuple[Finding, ...]:
    """A failing finding, of a theorem that knows nothing of them, if each step draws from one public group of the records; else empty."""
    if run.batches.participation is not Participation.DRAW_IN_PUBLIC_GROUP:
        return ()
    design = run.batches.design
    return (
        fails(
            "batches",
            f"it is not about steps that draw from one group of the records; batches are {design}",
            source=f"batches.design = {design}",
            remedy="use composition, sampled-gaussian or a theorem on correlated noise, which know groups.",
        ),
    )


def examine_noise(run: Run, *, correlated: bool) -> tuple[Finding, ...]:
    """A failing finding if the run's noise is of another kind than the theorem is about; else empty.

    Args:
        run: the run.
        correlated: whether the theorem is about correlated noise; else it is about independent noise.
    """
    if (run.noise is not None) == correlated:
        return ()
    got = "independent" if run.noise is None else run.noise.kind
    return (
        fails(
            "noise",
            f"it needs {'correlated' if correlated else 'independent'} noise; this run's is {got}",
            source=f"noise = {'null' if run.noise is None else got}",
            remedy="use composition, or give the run a strategy." if correlated else "use correlated-noise, or drop noise.",
        ),
    )


def arithmetic(run: Run) -> Finding:
    """What rounding does to iterates that nobody sees: counted where the precision is known, else declared to be nothing."""
    if run.precision is None:
        detail = "iterates and gradients are exact: precision is not said, and rounding is not counted"
    else:
        dtype, norm = run.precision.dtype, run.precision.parameter_norm
        errors = run.rounding_errors
        assert errors is not None
        if not np.isfinite(errors).all():
            return fails(
                "arithmetic",
                f"{dtype} parameters of norm <= {norm:.6g}: what rounding does in a step has no bound",
                source="precision and regulariser",
                remedy="use regularisers whose proximal step says its roundings, and a parameter_norm that training comes near.",
            )
        detail = f"{dtype} parameters of norm <= {norm:.6g} after noise: rounding, up to {errors.max():.2g} a step, is counted"
        if singular := [part for part in run.regularisers if isinstance(part, NuclearNorm)]:
            detail += f"; that singular values are off by {singular[0].roundings:g} roundings of their norm at most is not proved"
    return holds("arithmetic", detail, evidence="declared")


def examine_precision(precision: Precision) -> Finding:
    """The finding of a theorem on the last iterate that is stated for exact arithmetic: float64 is declared to be that, float32 is not.

    Args:
        precision: of the run.
    """
    if precision.dtype == "float64":
        return holds("arithmetic", "it is stated for exact arithmetic; the rounding of float64 is not counted", evidence="declared")
    return fails(
        "arithmetic",
        f"it is stated for exact arithmetic; iterates are {precision.dtype}, whose rounding adds up over the steps",
        source="precision.dtype",
        remedy="use optimal-shift, which counts rounding, or keep the iterates in float64.",
    )
