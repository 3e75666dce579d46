"""Audit of two trainings that release every step, each step a trial. Conditional on a sampled Gaussian; it certifies nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lethe.audit.claim import Claim
from lethe.audit.games.error_context import blamed
from lethe.audit.games.trials import World, require_steps
from lethe.audit.games.two_worlds import trial_seeds
from lethe.audit.page import AuditPage
from lethe.audit.statistics.curves import SampledGaussianCurve
from lethe.audit.statistics.games import two_world
from lethe.audit.statistics.inputs import require_array
from lethe.audit.statistics.result import Neighbours
from lethe.audit.statistics.rules import Rule, Split
from lethe.calculus.domains import FloatArray
from lethe.errors import InputError


def watch_steps(world: World, directions: ArrayLike, *, seed: int) -> tuple[FloatArray, FloatArray]:
    r"""Train once without and once with the record: $\langle g_t, e_t\rangle$ of each step, shape (T,) each.

    Args:
        world: the training; its steps are what each step released, such as the noisy sum of gradients.
        directions: $e_t$, of the record's gradient, shape (T, D), or (D,) for one at every step.
        seed: of both trainings, whose own seeds differ.
    Raises:
        InputError: the world shows no steps, or other shapes.
    """
    along, shown = np.asarray(directions, dtype=np.float64), list[FloatArray]()
    for inside, number in zip((False, True), trial_seeds(seed, 2), strict=True):
        with blamed(f"the training with seed {number}"):
            steps = require_steps(world(inside, number))
        if along.shape not in (steps.shape, steps.shape[1:]):
            raise InputError(
                f"directions: got shape {along.shape}; the steps are of shape {steps.shape}.", source="the argument directions"
            )
        shown.append(np.sum(steps * along, axis=1))
    return shown[0], shown[1]


def judge_steps(
    out_steps: ArrayLike,
    in_steps: ArrayLike,
    *,
    sampling_probability: float,
    subject: str,
    canary: str,
    claim: Claim | None,
    delta: float,
    neighbours: Neighbours,
    seed: int,
    rule: Rule | None = None,
    level: float = 0.05,
) -> AuditPage:
    r"""The page of two trainings that showed every step.

    One $\mu$ is found for all steps, and composed T times with the record in each batch with probability q. That is right where the steps
    are independent, as with a gradient that does not depend on the iterate and others that are 0 or taken off; it is called conditional.

    Args:
        out_steps: of the training without the record, shape (T,), higher where it seems to have been there.
        in_steps: of the one with it, shape (T,).
        sampling_probability: q in (0, 1]; 1: it is in every batch.
        subject, canary, claim: see `AuditPage`.
        delta: $\delta \in (0, 1)$ of all T steps.
        neighbours: what "without the record" meant.
        seed: of the trainings, and of the halves.
        rule: where the threshold is; None: chosen on half of the steps, judged on the other.
        level: $\alpha$.
    Raises:
        InputError: an argument is outside its range, or one training shows more steps than the other.
        HypothesisError: the record is seen in more steps than q allows.
    """
    out, inside = (require_array(name, values, dimensions=1) for name, values in (("out_steps", out_steps), ("in_steps", in_steps)))
    if out.shape != inside.shape:
        raise InputError(
            f"in_steps: got {inside.size} steps; the training without the record has {out.size}.", source="the argument in_steps"
        )
    audited = two_world(
        out,
        inside,
        rule=Split(seed=seed) if rule is None else rule,
        delta=delta,
        neighbours=neighbours,
        threat="white_box",
        level=level,
        curve=SampledGaussianCurve(sampling_probability=sampling_probability, steps=out.size),
        unit="step",
        seeds=(seed,),
    )
    return AuditPage(subject=subject, canary=canary, claim=claim, audits=(audited,))
