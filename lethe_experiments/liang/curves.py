"""Liang et al. 2025, Figures 1 and 2: one curve, from the trainings to its rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import special

from lethe.audit.games.shadow_models import draw_candidates, shadow_attack
from lethe.audit.statistics.counts import Booleans, Guesses
from lethe.audit.statistics.curves import AuditSetting
from lethe.audit.statistics.one_run import membership_inference
from lethe.calculus.domains import FloatArray
from lethe_experiments.base import Cell
from lethe_experiments.hong.figure_1 import mean_and_margin
from lethe_experiments.liang.attack_network import learn_attack
from lethe_experiments.liang.pictures import Pictures
from lethe_experiments.liang.plans import DELTA, LEVEL, Plan, Setting, theory
from lethe_experiments.liang.training import NetworkTrainer

COLUMNS = (
    "noise",
    "noise_multiplier",
    "batch_size",
    "diameter",
    "epochs",
    "steps",
    "repeats",
    "training_loss",
    "training_loss_margin",
    "estimate",
    "estimate_margin",
    "certified_bound",
    "level",
    "canaries",
    "guessed",
    "correct",
    "published",
    "published_by",
    "certificate",
    "certificate_by",
)
_SEED = 250217772  # of the paper's number
_SETTING = AuditSetting(delta=DELTA, neighbours="zero_out", threat="average_case", level=LEVEL)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Attacked:
    """One audited model: the attack's answers and the members' mean loss at each checkpoint, and the coins."""

    seed: int
    probabilities: FloatArray
    losses: FloatArray
    included: Booleans


def curve(data: Pictures, plan: Plan, setting: Setting, trained: Callable[[int], None]) -> list[tuple[Cell, ...]]:
    """A row for each number of epochs.

    Args:
        data: what networks are trained on.
        plan: how long, and how many.
        setting: batch size, domain and noise.
        trained: is told after each network how many records were expected in all its batches.
    """
    models = [_attacked(data, plan, setting, repeat, trained) for repeat in range(plan.repeats)]
    rows: list[tuple[Cell, ...]] = []
    for place, epochs in enumerate(plan.epochs):
        found = membership_inference(
            [model.probabilities[place] for model in models],
            [model.included for model in models],
            _SETTING,
            guesses=plan.guesses,
            seeds=[model.seed for model in models],
        )
        counts = found.bound.counts
        assert isinstance(counts, Guesses)  # those of a game in one run
        run = plan.run(setting, epochs)
        said = theory(run)
        rows.append(
            (
                setting.noise.name,
                float(run.noise_multipliers[0]),
                setting.batch_size,
                setting.diameter,
                epochs,
                run.total_steps,
                plan.repeats,
                *mean_and_margin([float(model.losses[place]) for model in models]),
                # No logarithm exists where everyone is guessed wrongly; that is no number to average.
                *mean_and_margin([value if value > -math.inf else math.nan for value in found.printed]),
                found.bound.epsilon,
                LEVEL,
                counts.canaries,
                counts.guessed,
                counts.correct,
                said.published,
                said.published_by,
                said.certificate,
                said.certificate_by,
            )
        )
    return rows


def _attacked(data: Pictures, plan: Plan, setting: Setting, repeat: int, trained: Callable[[int], None]) -> _Attacked:
    # The same candidates, coins and streams for every setting, others for every repeat.
    state = np.random.SeedSequence([_SEED, repeat]).generate_state(plan.shadows + 3, np.uint64)
    drawing, *seeds = (int(number >> np.uint64(1)) for number in state)
    target, shadows = draw_candidates(len(data.labels), plan.candidates, plan.shadows, seed=drawing)
    probabilities, logits = shadow_attack(
        data.labels,
        target,
        shadows,
        train=NetworkTrainer(pictures=data.pixels, labels=data.labels, plan=plan, setting=setting),
        learn=partial(learn_attack, steps=plan.attack_steps),
        seeds=seeds,
        finished=lambda: trained(plan.visits_of_one(setting)),
    )
    members = logits[:, target.included]
    right = members[:, np.arange(members.shape[1]), data.labels[target.rows][target.included]]
    losses = (special.logsumexp(members, axis=2) - right).mean(axis=1)
    return _Attacked(seed=seeds[0], probabilities=probabilities, losses=losses, included=target.included)
