"""Clip methods, and which of them each theorem allows."""

from __future__ import annotations

from typing import Literal

from lethe.certificates.findings import Finding, fails
from lethe.run.run import Run

Clipping = Literal["one norm", "projections", "any"]


def examine_clipping(run: Run, allowed: Clipping) -> tuple[Finding, ...]:
    """The failing findings of a clip method that the theorem does not allow; empty where it is allowed.

    A projection does not bring two gradients further apart, so a step has a Lipschitz constant that follows from the loss's curvature.
    Normalising does: it gives gradients of norm $10^{-9}$ and opposite directions the distance 2C. All that is left then is the bound on
    the norm, which is enough where every touch pays for itself. Clipping groups of parameters, each to its norm, is a projection too, on a
    product of balls, but turns gradients.

    Args:
        run: the run.
        allowed: "one norm": the projection on one ball; "projections": groups too; "any": whatever bounds the norm.
    """
    found: list[Finding] = []
    if run.clip_method != "clip" and allowed != "any":
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
