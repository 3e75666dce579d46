"""Clip methods, and which of them each theorem allows."""

from __future__ import annotations

from typing import Literal

from lethe.certificates.findings import Finding, fails
from lethe.run.clip_fields import SHORTENING
from lethe.run.descended import descends_envelope
from lethe.run.run import Run

Clipping = Literal["one norm", "projections", "projections and envelopes", "any"]


def examine_clipping(run: Run, allowed: Clipping) -> tuple[Finding, ...]:
    """The failing findings of a clip method that the theorem does not allow; empty where it is allowed.

    A projection does not bring two gradients further apart, so a step has a Lipschitz constant that follows from the loss's curvature.
    Normalising does: it gives gradients of norm $10^{-9}$ and opposite directions the distance 2C. All that is left then is the bound on
    the norm, which is enough where every touch pays for itself. Clipping groups of parameters, each to its norm, is a projection too, on a
    product of balls, but turns gradients. The gradient of a Lipschitz envelope is that of another convex function, whose own curvature
    counts, and which is known up to the error of a search: a theorem has to know of both.

    Args:
        run: the run.
        allowed: "one norm": the projection on one ball; "projections": groups too; "projections and envelopes": these, and
            `lethe.run.descended`; "any": whatever bounds the norm.
    """
    found: list[Finding] = []
    if descends_envelope(run) and allowed in ("one norm", "projections"):
        found.append(
            fails(
                "clip method",
                "it is stated for the loss's own gradients, clipped by projection or not at all; these are of the loss's envelope, another "
                "function, and known up to the error of a search",
                source=f"clip_method = {run.clip_method}",
                remedy="use one of Lethe's own theorems, or clip_method: clip, in the training too.",
            )
        )
    if run.clip_method not in SHORTENING and allowed != "any":
        found.append(
            fails(
                "clip method",
                f"it needs clipping by projection; {run.clip_method} is none: it can bring two gradients further apart, and a step then "
                "has no Lipschitz constant",
                source=f"clip_method = {run.clip_method}",
                remedy="use composition, which needs the bound on the norm only, or clip_method: clip, in the training too.",
            )
        )
    if run.clips and run.clips_in_groups and allowed == "one norm":
        assert run.clip_groups is not None
        found.append(
            fails(
                "clip groups",
                f"it is stated for one norm over all parameters; {len(run.clip_groups)} groups are clipped by themselves, which turns "
                "gradients",
                source=f"clip_groups = {list(run.clip_groups)}",
                remedy="use one of Lethe's own theorems, or one clip_norm for all parameters, in the training too.",
            )
        )
    return tuple(found)
