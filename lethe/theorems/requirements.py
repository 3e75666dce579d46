"""Hypotheses that several theorems share, each checked by one function.

A theorem's `_examine` calls those it needs with the Run; each returns a finding, holding or failing, that certificates and comparisons show
with its remedy.
"""

import sys
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from lethe.calculus.rounding import round_down
from lethe.calculus.sampled.renyi import Design
from lethe.calculus.upward_formatting import shown, shown_down
from lethe.certificates.findings import Finding, fails, holds, holds_by_declaration
from lethe.run.effective_loss import descended_curvature, descended_name, descends_envelope, gradient_error
from lethe.run.fields import COUNT_SHARE, SHORTENING
from lethe.run.losses import Holder
from lethe.run.participation import BatchSizes, Participation, unknown_sizes
from lethe.run.regularisers import Box
from lethe.run.run import Run
from lethe.theorems.steps import largest_curvature

# Two gigabytes, and less than a minute.
_MOST_SHIFTED_STEPS = 5_000_000


def gradient_bound(run: Run) -> Finding:
    """One record's gradient must have norm at most `run.record_bound`, and two must differ by at most twice `run.touch_bound`."""
    if run.bounds_differences_only or run.touch_bound < run.record_bound:
        what = f"two records' gradients differ by <= {2 * run.touch_bound:.6g} (a term common to all cancels"
        clip_note = "" if run.clip_norm is None else f"; clipping to {run.clip_norm:g} brings them no further apart"
        return holds_by_declaration("gradient bound", f"{run.loss.summary}: {what}{clip_note})", evidence=run.loss.evidence)
    if run.clip_norm is not None and run.record_bound == run.clip_norm:
        idle = "" if run.clips else ", which never acts: no gradient of the loss is longer"
        rows = "" if run.sparse_selection is None else "; with its map of rows, which has its share of the noise, it counts as one vector"
        return holds("gradient bound", f"clip_norm: every record's gradient is {_bounded(run)} norm {run.clip_norm:g}{idle}{rows}")
    what = f"{run.loss.summary}: every record's gradient has norm <= {run.record_bound:.6g}"
    if run.clip_norm is not None:
        times = run.clip_bound / run.record_bound
        what += f"; clip_norm = {run.clip_norm:.6g} never acts, and noise relative to it is {times:.6g} times as large for a gradient"
    return holds_by_declaration("gradient bound", what, evidence=run.loss.evidence)


def _bounded(run: Run) -> str:
    if descends_envelope(run):
        return "that of its loss's Lipschitz envelope, of at most"
    if run.clip_method == "adaptive":
        return f"clipped to a norm that follows a count with noise, which takes {COUNT_SHARE:.0%} of each step's privacy; in its unit, to"
    if run.clip_method not in SHORTENING:
        return f"brought ({run.clip_method}) to at most"
    if run.clips_in_groups:
        assert run.clip_groups is not None
        return f"clipped, in {len(run.clip_groups)} groups of parameters, to"
    return "clipped to"


def each_gradient_bounded(run: Run) -> Finding:
    """`gradient_bound`, refused where only the difference of two records' gradients is known to be bounded."""
    if run.bounds_differences_only:
        return fails(
            "gradient bound",
            "it needs a bound on each record's gradient; on this domain only the difference of two is bounded, and a large term common "
            "to all records tells which of them were drawn",
            source="loss.kind = strongly_convex, clip_norm = null",
            remedy="set clip_norm, or write the quadratic part as regulariser: {kind: ridge, strength: ...}.",
        )
    return gradient_bound(run)


def gradient_bound_when_drawn(run: Run) -> Finding:
    """For batches drawn afresh: with exact sizes a term common to all records cancels against the record in whose place one is drawn."""
    return gradient_bound(run) if run.batches.exact_size else each_gradient_bounded(run)


def last_iterate(run: Run) -> Finding:
    """Only the last iterate may be released."""
    if run.release == "last":
        detail = "nobody ever sees more than the last iterate: no average, no checkpoint, no optimiser state"
        return holds("release", detail, evidence="declared")
    return fails(
        "release",
        f"it needs that only the last iterate is released; release is {run.release}",
        source=f"release = {run.release}",
        remedy="release the last iterate only, or use composition.",
    )


def solvable_length(run: Run) -> tuple[Finding, ...]:
    """A failing finding if the run has more steps than the optimal shift is solved for (some 370 bytes a step); else empty."""
    if run.total_steps <= _MOST_SHIFTED_STEPS:
        return ()
    return (
        fails(
            "length",
            f"the shift is solved for up to {_MOST_SHIFTED_STEPS} steps; this run has {run.total_steps}",
            source="steps, or passes times the batches of a pass",
            remedy="take larger batches, or certify by a theorem of closed form or by composition.",
        ),
    )


def design(run: Run, designs: Sequence[str], detail: str) -> Finding:
    """The batch design must be one of those given.

    `detail` says what the design means for the theorem, if it is one of them.
    """
    got = run.batches.design
    if got in designs:
        return holds("batches", f"{got}: {detail}")
    needed = " or ".join(designs)
    return other_batches(run, "batches", f"it needs {needed} batches", f"train with {needed} batches, if that is what you want.")


def other_batches(run: Run, name: str, needs: str, remedy: str) -> Finding:
    """The failing finding about a batch design that will not do.

    `needs` is a sentence without its end.
    """
    got = run.batches.design
    return fails(name, f"{needs}; batches are {got}", source=f"batches.design = {got}", remedy=remedy)


def drawn_afresh(run: Run) -> Finding:
    """Batches must be drawn afresh at each step."""
    got, groups = run.batches.design, run.batches.groups_of_records
    if run.batches.participation is Participation.INDEPENDENT_DRAW:
        return holds("random batches", f"{got}, {run.batch_size} of {run.records} records at each step")
    if run.batches.participation is Participation.DRAW_IN_PUBLIC_GROUP:
        return holds(
            "random batches", f"{got}, {run.batch_size} of the {-(-run.records // groups)} records of one of {groups} groups at each step"
        )
    remedy = "draw batches by poisson or without_replacement, in the training too."
    return other_batches(run, "random batches", "it needs batches drawn afresh at each step", remedy)


def drawn_by(run: Run) -> Design:
    """The sampling design, as `lethe.calculus.sampled` names it, of a run whose batches are `drawn_afresh`.

    Raises:
        InputError: nothing is known of the batches' sizes.
    """
    match run.batches.sizes:
        case BatchSizes.BINOMIAL:
            return "poisson"
        case BatchSizes.EXACT:
            return "without_replacement"
        case BatchSizes.UNKNOWN:
            raise unknown_sizes(run.batches.design, run.batches.sizes)
    raise unknown_sizes(run.batches.design, run.batches.sizes)


def whole_passes(run: Run) -> Finding:
    """The run must end with a pass."""
    remainder = run.total_steps % run.steps_per_pass
    if remainder == 0:
        return holds("passes", f"{run.total_steps // run.steps_per_pass} whole passes of {run.steps_per_pass} steps")
    return fails(
        "passes",
        f"it is stated for whole passes; the last one stops after {remainder} of {run.steps_per_pass} steps",
        source=f"steps = {run.total_steps}",
        remedy="use optimal-shift, which takes any number of steps, or give passes.",
    )


def relation(run: Run, relations: Sequence[str]) -> Finding:
    """The neighbouring relation must be one of `relations`."""
    if run.neighbours in relations:
        return holds("neighbours", run.neighbours)
    needed = " or ".join(relations)
    return fails(
        "neighbours",
        f"it is stated for {needed}; neighbours is {run.neighbours}",
        source=f"neighbours = {run.neighbours}",
        remedy=f"ask for {needed}, if that is the protection you want.",
    )


def secrecy(run: Run) -> Finding:
    """Nobody may learn what the design keeps secret."""
    return holds("secrecy", f"nobody learns {run.batches.secret}", evidence="declared")


def constant_noise_and_step(run: Run) -> Finding:
    """One step size and one noise level at every step."""
    varying = [
        name
        for name, values in (("step_size", run.step_sizes), ("noise_multiplier", run.noise_multipliers))
        if values.min() != values.max()
    ]
    if not varying and run.noise_multipliers[0] > 0:
        return holds("constant schedule", "one step size and one noise level at every step")
    what = f"{' and '.join(varying)} change" if varying else "there is no noise"
    return fails(
        "constant schedule",
        f"it is stated for one step size and one noise level > 0 at every step; {what}",
        source=", ".join(varying) or "noise_multiplier = 0",
        remedy="use optimal-shift, which takes any schedule.",
    )


def noise_at_every_step(run: Run) -> Finding:
    """Noise may vary but never be zero."""
    silent = int(np.count_nonzero(run.noise_multipliers == 0))
    if silent == 0:
        return holds("noise", "noise at every step")
    return fails(
        "noise",
        f"it needs noise at every step; {silent} of {run.total_steps} have none",
        source=f"noise_multiplier and noise_at = {run.noise_at}",
        remedy="use optimal-shift, which takes steps without noise.",
    )


def noise_at_the_end(run: Run) -> Finding:
    """The last step must have noise."""
    if run.noise_multipliers[-1] > 0:
        return holds("noise", "noise at the last step")
    return fails(
        "noise",
        "it needs noise at the last step; there is none",
        source="noise_multiplier",
        remedy="add noise at the last step: without it nothing is private.",
    )


def smooth(run: Run) -> Finding:
    """The loss must have known curvature."""
    curvature = descended_curvature(run)
    if curvature is None:
        return fails(
            "smoothness",
            f"it needs smooth losses; nothing is known of the curvature of the {run.loss.summary}",
            source=f"loss.kind = {run.loss.kind}",
            remedy="state the loss's smoothness.",
        )
    weak_convexity, smoothness = curvature
    if not np.isfinite(largest_curvature(run)):
        return fails(
            "smoothness",
            "it needs a step size times curvature that is a number; they multiply to infinity",
            source=f"step_size up to {run.step_sizes.max():g}, curvature up to {max(abs(weak_convexity), smoothness):g}",
            remedy="check the units of step_size and of the loss's smoothness.",
        )
    norm = getattr(run.loss, "feature_norm", None)
    intercept = " and a constant feature 1" if getattr(run.loss, "intercept", False) else ""
    because = f"features of norm <= {norm:g}{intercept}: " if norm is not None else ""
    searched = f", gradients to within {error:.2g} of clip_norm" if (error := gradient_error(run)) > 0.0 else ""
    detail = f"{because}{descended_name(run)} with curvature in [{0 - weak_convexity:g}, {smoothness:.6g}]{searched}"
    return holds_by_declaration("curvature", detail, evidence=run.loss.evidence)


def convex(run: Run) -> Finding:
    """The loss must be smooth and convex (strongly convex ones are)."""
    finding = smooth(run)
    if run.loss.curvature is None or run.loss.curvature[0] <= 0:
        return finding
    return fails(
        "curvature",
        f"it needs convex losses; curvature goes down to {-run.loss.curvature[0]:g}",
        source=f"loss.kind = {run.loss.kind}",
        remedy="use optimal-shift, which takes any curvature.",
    )


def strongly_convex(run: Run) -> Finding:
    """The loss itself must be smooth and strongly convex; a ridge taken by a proximal step is not in the loss."""
    finding = smooth(run)
    if run.loss.curvature is None or run.loss.curvature[0] < 0:
        return finding
    return fails(
        "curvature",
        f"it needs strongly convex losses; curvature goes down to {0 - run.loss.curvature[0]:g}",
        source=f"loss.kind = {run.loss.kind}",
        remedy="use optimal-shift, which also takes a ridge by its proximal step.",
    )


def unclipped(run: Run) -> Finding:
    """Clipping may never act: a clipped step has another Lipschitz constant."""
    if not run.clips:
        return holds("clipping", "no clipping active: the loss's own gradients are bounded")
    return fails(
        "clipping",
        "it holds without clipping only, which changes the Lipschitz constant of a step; clipping is active",
        source=f"clip_norm = {run.clip_norm:g}",
        remedy="use optimal-shift, which has the exact constant of a clipped step.",
    )


def two_over_smoothness(run: Run) -> float:
    """$2/M$, rounded down, up to which a gradient step of a convex loss does not expand; inf where M = 0 or nothing is known."""
    smoothness = run.loss.curvature[1] if run.loss.curvature is not None else 0.0
    if not smoothness > 0:
        return np.inf
    limit = min(2.0 / smoothness, sys.float_info.max)
    return limit if Fraction(limit) * Fraction(smoothness) <= 2 else round_down(limit)


def step_at_most(run: Run, limit: float, name: str, *, strictly: bool = False) -> Finding:
    """No step size may exceed a limit.

    `name` is the limit as a formula; with `strictly` a step size equal to it fails too.
    """
    largest, sign = float(run.step_sizes.max()), "<" if strictly else "<="
    if largest < limit or (largest == limit and not strictly):
        return holds("step size", f"{largest:.6g} {sign} {name} = {limit:.6g}")
    return fails(
        "step size",
        f"it needs a step size {sign} {name} = {shown_down(limit, 6)}; the largest is {shown(largest, 6)}",
        source="step_size",
        remedy="take smaller steps, or use optimal-shift, which has no such limit.",
    )


def holder_gradient(run: Run) -> Finding:
    """The loss's gradient must be known to be Hölder continuous."""
    if isinstance(run.loss, Holder):
        detail = f"gradients differ by <= {run.loss.constant:g} times the distance to the power {run.loss.exponent:g}"
        if run.loss.convex:
            detail += ", convex, which clipping undoes" if run.clips else ", convex"
        return holds_by_declaration("Hölder gradient", detail, evidence=run.loss.evidence)
    return fails(
        "Hölder gradient",
        f"it needs losses with a Hölder gradient; loss.kind is {run.loss.kind}",
        source=f"loss.kind = {run.loss.kind}",
        remedy="state loss: {kind: holder, constant: ..., exponent: ...}; for smooth losses use optimal-shift.",
    )


def bounded_domain(run: Run) -> Finding:
    """The iterates must stay in a domain of finite diameter."""
    if np.isinf(run.diameter):
        return fails(
            "domain",
            "it needs a bounded domain; there is none",
            source="regulariser",
            remedy="add regulariser: {kind: ball, radius: ...}.",
        )
    stated = any(isinstance(part, Box) and part.diameter == run.diameter for part in run.regularisers)
    if stated:
        return holds("domain", f"diameter {run.diameter:g}, of a box in the dimension stated", evidence="declared")
    return holds("domain", f"diameter {run.diameter:g}, of the regulariser's domain")
