"""Influence of noise by retraining with slightly more noise at one step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from lethe.calculus.domains import require_count
from lethe.errors import InputError, LetheError, require_finite
from lethe.influence.auxiliary import AuxiliaryData, PublicData, SyntheticData, require_public, require_statement
from lethe.influence.estimate import Estimate
from lethe.influence.linear_problem import linear_problem, repeat_seeds
from lethe.influence.probes import Spacing, choose_probes
from lethe.run.run import Run
from lethe.run.schedules.base import Array
from lethe.train.callbacks.progress import Progress, reporting

Others = Literal["planned", "none"]


class Train(Protocol):
    """A training that can be repeated exactly, of whatever model, on data that are not private."""

    def __call__(self, noise_stds: Array, seed: int) -> float:
        """Train once and return the final loss.

        Args:
            noise_stds: shape (T,), parameter units, signed: step t must add noise_stds[t] times standard normal numbers that depend on
                the seed and on t only, not on noise_stds. Draw them at steps without noise too.
            seed: of these numbers, the batches and whatever else is random.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicTrainer:
    """A training of any model (a network, say), with the reason why what it trains on is no secret.

    Args:
        train: as `Train` says.
        statement: which data it trains on and why these are public or made up.
        basis: "public" or "synthetic".
    Raises:
        InputError: `train` cannot be called, or no statement.
    """

    train: Train
    statement: str
    basis: Literal["public", "synthetic"] = "public"

    def __post_init__(self) -> None:
        require_statement(self.statement)
        if not callable(self.train):
            raise InputError(f"train: got {self.train!r}; it needs a function of (noise_stds, seed).")
        if self.basis not in ("public", "synthetic"):
            raise InputError(f"basis: got {self.basis!r}; it needs public or synthetic.")

    @property
    def origin(self) -> str:
        """What it trains on, in words."""
        return f"a given training ({self.statement.strip()})"


def retraining_influence(
    run: Run,
    data: AuxiliaryData | PublicTrainer,
    *,
    repeats: int,
    seed: int,
    probes: int | Sequence[int] | None = None,
    spacing: Spacing = "geometric",
    others: Others = "planned",
    rise: float = 1.0,
    progress: bool | Progress = False,
) -> Estimate:
    r"""The rise of the mean final loss f when the noise variance of one step is raised, all random numbers kept.

    $$\hat q_t = \frac{1}{r}\sum_{\text{seeds}} \frac{f_t\big(\sqrt{v_t + h u_t}\big) - f_t\big(\sqrt{v_t}\big)}{h u_t},\qquad
    f_t(s) = \frac12\Big(f\big|_{\nu_t = s\xi_t} + f\big|_{\nu_t = -s\xi_t}\Big)$$

    where $v_t = \tau_t^2$ (0 with others = none) and $u_t = \tau_t^2$ (at steps without noise: the mean variance of those with noise).
    Trainings with the same seed share batches and all standard normal numbers $\xi$, so what they have in common cancels in the difference.
    The sign of $\xi_t$ alone is flipped: $-\xi_t$ is as likely as $\xi_t$ whatever the rest, so each half has the same expectation and the
    mean is unbiased; and all terms odd in $\nu_t$ cancel, the linear one above all, which is zero on average and often larger than what is
    looked for.

    What is measured is the slope of the expected loss between the variances $v_t$ and $v_t + hu_t$: the derivative on a quadratic, close to
    it elsewhere if h is small. The loss is that of the auxiliary data, without the regulariser.

    Args:
        run: with its noise set, to the level that is being planned; `plan` finds it for constant noise.
        data: SyntheticData, PublicData, or a PublicTrainer for another model.
        repeats: r >= 2, seeds to average over.
        seed: integer >= 0, from which the r seeds are made.
        probes: at how many steps to measure, or at which (counted from 1); None: all up to 32, else 16.
        spacing: of the probes, "geometric" in the steps left, or "even".
        others: what noise the other steps have: "planned", or "none", which costs 2 trainings a probe and repeat instead of 4 (3 where
            step t is without noise) and measures the influence around the path without noise.
        rise: h > 0.
        progress: True, or a function of (trainings done, trainings in all).
    Returns:
        The weights at the probes, with standard errors over the repeats.
    Raises:
        InputError: plain arrays; a run without noise; an argument out of range; or a training that does not repeat itself.
        LetheError: a training overflowed.
    """
    require_public(run, data, (SyntheticData, PublicData, PublicTrainer))
    repeats = require_count("repeats", repeats, low=2)
    seed = require_count("seed", seed, low=0)
    rise = require_finite("rise", rise, low=0.0, strict=True)
    if others not in ("planned", "none"):
        raise InputError(f"others: got {others!r}; it needs planned or none.")
    steps = choose_probes(run.total_steps, probes, spacing)
    planned = run.noise_stds
    if not planned.any():
        raise InputError(
            "noise_multiplier: 0 at every step; the run does not say at what noise to measure.",
            source="run.noise_multiplier",
            remedy="set it, or let `plan` find a constant one first.",
        )
    train = data.train if isinstance(data, PublicTrainer) else linear_problem(run, data).train
    base = planned if others == "planned" else np.zeros_like(planned)
    rises = _rises(planned, rise)[steps - 1]
    if isinstance(data, PublicTrainer):
        _refuse_unrepeatable(train, base, repeat_seeds(seed, 1)[0])
    noisy = int((base[steps - 1] > 0).sum())
    trainings = repeats * (1 + 2 * len(steps) + noisy)
    with reporting(progress, trainings) as finished:
        loss = _counted(train, lambda done: finished(done, trainings))
        rows = [_one_repeat(loss, base, steps, rises, number) for number in repeat_seeds(seed, repeats)]
    samples = np.array(rows)
    return Estimate(
        steps=run.total_steps,
        probes=steps,
        weights=samples.mean(axis=0),
        errors=samples.std(axis=0, ddof=1) / math.sqrt(repeats),
        basis=data.basis,
        detail=f"{repeats} paired retrainings at {len(steps)} of {run.total_steps} steps on {data.origin}",
    )


def _rises(planned: Array, rise: float) -> Array:
    """By how much the variance of each step is raised, shape (T,)."""
    with np.errstate(over="ignore", under="ignore"):
        variances = planned**2
        rises = rise * np.where(planned > 0, variances, variances[planned > 0].mean())
    if not (rises.min() > 0 and rises.max() < math.inf):
        raise InputError(
            f"rise: variances would rise by {rises.min():g} to {rises.max():g}; they need finite numbers > 0.",
            source="rise and run.noise_stds",
            remedy="scale the problem so that noise is nearer to 1.",
        )
    return rises


def _one_repeat(train: Train, base: Array, steps: Sequence[int] | np.ndarray, rises: Array, seed: int) -> Array:
    """The weight at each probe from one seed, shape (probes,)."""

    def with_noise(step: int, noise_std: float) -> float:
        changed = base.copy()
        changed[step - 1] = noise_std
        return train(changed, seed)

    weights = np.empty(len(steps))
    common = train(base, seed)
    for index, step in enumerate(steps):
        low, high = base[step - 1], math.sqrt(base[step - 1] ** 2 + rises[index])
        mirrored = with_noise(step, -low) if low > 0 else common
        weights[index] = ((with_noise(step, high) + with_noise(step, -high)) - (common + mirrored)) / (2 * rises[index])
    return weights


def _counted(train: Train, finished: Callable[[int], None]) -> Train:
    done = 0

    def counting(noise_stds: Array, seed: int) -> float:
        nonlocal done
        loss = _finite(train, noise_stds, seed)
        done += 1
        finished(done)
        return loss

    return counting


def _finite(train: Train, noise_stds: Array, seed: int) -> float:
    loss = float(train(noise_stds, seed))
    if not math.isfinite(loss):
        raise LetheError(f"train: returned {loss} as the final loss.", remedy="take smaller steps or less noise.")
    return loss


def _refuse_unrepeatable(train: Train, noise_stds: Array, seed: int) -> None:
    first, second = (_finite(train, noise_stds, seed) for _ in range(2))
    if first != second:
        raise InputError(
            f"train: two trainings with the same noise and seed ended at {first!r} and at {second!r}; they need to end at the same number.",
            source="PublicTrainer.train",
            remedy="derive all randomness from the seed, and use deterministic arithmetic.",
        )
