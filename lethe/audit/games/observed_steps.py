"""Audit of two trainings that release every step, each step a trial. Conditional on a sampled Gaussian; it certifies nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lethe.audit.games.error_context import errors_of
from lethe.audit.games.scores import TwoWorldScores
from lethe.audit.games.trials import World, require_steps
from lethe.audit.games.two_worlds import trial_seeds
from lethe.audit.page import AuditPage
from lethe.audit.statistics.curves import SampledGaussianCurve
from lethe.audit.statistics.inputs import require_array
from lethe.audit.statistics.lower_bounds import two_world
from lethe.audit.statistics.rules import Split, ThresholdRule
from lethe.audit.statistics.setting import AuditSetting
from lethe.calculus.domains import FloatArray
from lethe.errors import InputError


def watch_steps(world: World, directions: ArrayLike, *, seed: int) -> TwoWorldScores:
    r"""Train once without and once with the record: $\langle g_t, e_t\rangle$ of each step, a score each, shape (T,) in each world.

    Args:
        world: the training; its steps are what each step released, such as the noisy sum of gradients.
        directions: $e_t$, of the record's gradient, shape (T, D), or (D,) for one at every step.
        seed: of both trainings, whose own seeds differ.
    Raises:
        InputError: the world shows no steps, or other shapes.
    """
    along, shown = np.asarray(directions, dtype=np.float64), list[FloatArray]()
    for inside, number in zip((False, True), trial_seeds(seed, 2), strict=True):
        with errors_of(f"the training with seed {number}"):
            steps = require_steps(world(inside, number))
        if along.shape not in (steps.shape, steps.shape[1:]):
            raise InputError(
                f"directions: got shape {along.shape}; the steps are of shape {steps.shape}.", source="the argument directions"
            )
        shown.append(np.sum(steps * along, axis=1))
    return TwoWorldScores(out_scores=shown[0], in_scores=shown[1], seed=seed)


def audit_steps(
    page: AuditPage, scores: TwoWorldScores, setting: AuditSetting, *, sampling_probability: float, rule: ThresholdRule | None = None
) -> AuditPage:
    r"""The page of two trainings that showed every step.

    One $\mu$ is found for all steps, and composed T times with the record in each batch with probability q. That is right where the steps
    are independent, as with a gradient that does not depend on the iterate and others that are 0 or taken off; it is called conditional.

    Args:
        page: the subject, the canary and the claim, without audits.
        scores: one a step, shape (T,) in each world, as `watch_steps` gives them.
        setting: what the bound is for, all T steps together, delta above 0; the threat is "white_box". Its curve is not looked at.
        sampling_probability: q in (0, 1]; 1: the record is in every batch.
        rule: where the threshold is; None: chosen on half of the steps, drawn with the seed of the scores, judged on the other.
    Raises:
        InputError: an argument is outside its range, another threat, or one training shows more steps than the other.
        HypothesisError: the record is seen in more steps than q allows.
    """
    out, inside = (require_array(name, getattr(scores, name), dimensions=1) for name in ("out_scores", "in_scores"))
    if out.shape != inside.shape:
        raise InputError(
            f"in_scores: got {inside.size} steps; the training without the record has {out.size}.", source="the argument scores"
        )
    if setting.threat != "white_box":
        raise InputError(f"threat: got {setting.threat!r}; whoever sees every step is 'white_box'.", source="the argument setting")
    curve = SampledGaussianCurve(sampling_probability=sampling_probability, steps=out.size)
    declared = Split(seed=scores.seed) if rule is None else rule
    audited = two_world(out, inside, setting.model_copy(update={"curve": curve}), rule=declared, unit="step", seeds=(scores.seed,))
    return page.model_copy(update={"audits": (audited,)})
