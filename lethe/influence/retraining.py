"""Influence of noise by retraining with slightly more noise at one step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from lethe.calculus.domains import require_count
from lethe.errors import InputError, LetheError
from lethe.influence.data import AuxiliaryData, Estimate, PublicData, SyntheticData, require_public, require_statement
from lethe.influence.linear_problem import linear_problem, repeat_seeds
from lethe.run.run import Run
from lethe.run.schedules.base import Array

_RISE = 1.0  # u_t as a share of v_t
_ALL_OF, _OTHERWISE = 32, 16  # so many steps are all measured; else so many of them


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
    run: Run, data: AuxiliaryData | PublicTrainer, *, repeats: int, seed: int, probes: int | Sequence[int] | None = None
) -> Estimate:
    r"""The rise of the mean final loss f when the noise variance of one step is raised, all random numbers kept.

    $$\hat q_t = \frac{1}{r}\sum_{\text{seeds}} \frac{f_t\big(\sqrt{v_t + u_t}\big) - f_t\big(\sqrt{v_t}\big)}{u_t},\qquad
    f_t(s) = \frac12\Big(f\big|_{\nu_t = s\xi_t} + f\big|_{\nu_t = -s\xi_t}\Big)$$

    where $v_t = \tau_t^2$ and $u_t = v_t$ (at steps without noise: the mean variance of those with noise).
    Trainings with the same seed share batches and all standard normal numbers $\xi$, so what they have in common cancels in the difference.
    The sign of $\xi_t$ alone is flipped: $-\xi_t$ is as likely as $\xi_t$ whatever the rest, so each half has the same expectation and the
    mean is unbiased; and all terms odd in $\nu_t$ cancel, the linear one above all, which is zero on average and often larger than what is
    looked for.

    What is measured is the slope of the expected loss between the variances $v_t$ and $v_t + u_t$: the derivative on a quadratic, close to
    it elsewhere if noise is small. The loss is that of the auxiliary data, without the regulariser.

    Args:
        run: with its noise set, to the level that is being planned; `plan` finds it for constant noise.
        data: SyntheticData, PublicData, or a PublicTrainer for another model.
        repeats: r >= 2, seeds to average over.
        seed: integer >= 0, from which the r seeds are made.
        probes: at how many steps to measure, closer together towards the end, or at which (counted from 1); None: all up to 32, else 16.
    Returns:
        The weights at the probes, with standard errors over the repeats.
    """
    require_public(run, data, SyntheticData, PublicData, PublicTrainer)
    repeats, seed = require_count("repeats", repeats, low=2), require_count("seed", seed, low=0)
    steps, planned = choose_probes(run.total_steps, probes), run.noise_stds
    if not planned.any():
        raise InputError(
            "noise_multiplier: 0 at every step; the run does not say at what noise to measure.",
            source="run.noise_multiplier",
            remedy="set it, or let `plan` find a constant one first.",
        )
    with np.errstate(over="ignore", under="ignore"):
        rises = _RISE * np.where(planned > 0, planned**2, (planned[planned > 0] ** 2).mean())
    if not (rises.min() > 0 and rises.max() < math.inf):
        what = f"noise: variances would rise by {rises.min():g} to {rises.max():g}; they need finite numbers > 0."
        raise InputError(what, source="run.noise_stds", remedy="scale the problem so that noise is nearer to 1.")
    train = data.train if isinstance(data, PublicTrainer) else linear_problem(run, data).train
    seeds = repeat_seeds(seed, repeats)
    if isinstance(data, PublicTrainer):
        first, again = (_finite(train, planned, seeds[0]) for _ in range(2))
        if first != again:
            raise InputError(
                f"train: two trainings with the same noise and seed ended at {first!r} and {again!r}; they need to end at one number.",
                source="PublicTrainer.train",
                remedy="derive all randomness from the seed, and use deterministic arithmetic.",
            )
    samples = [_one_repeat(train, planned, steps, rises[steps - 1], number) for number in seeds]
    detail = f"{repeats} paired retrainings at {len(steps)} of {run.total_steps} steps on {data.origin}"
    return Estimate.of_samples(samples, steps=run.total_steps, probes=steps, basis=data.basis, detail=detail)


def choose_probes(steps: int, wanted: int | Sequence[int] | None = None) -> npt.NDArray[np.intp]:
    """The steps to measure, counted from 1, increasing; the first and the last are among them unless a list says otherwise.

    The number of steps left after a probe falls by a constant factor, since the influence bends most near the end, where quick modes have
    not died out yet. Some fall together where T is small.
    """
    if isinstance(wanted, Sequence | np.ndarray) and not isinstance(wanted, str | bytes):
        named = [require_count("probes", step, high=steps) for step in wanted]
        if not named or len(set(named)) < len(named):
            raise InputError(f"probes: got {list(wanted)!r}; it needs at least one step, none twice.")
        return np.array(sorted(named), dtype=np.intp)
    if wanted is None:
        wanted = steps if steps <= _ALL_OF else _OTHERWISE
    count = require_count("probes", wanted, low=min(2, steps))
    left = np.arange(steps, 0, -1) if count >= steps else np.geomspace(steps, 1, count)  # the last one included
    return np.unique(steps + 1 - np.round(left).astype(np.intp))


def _one_repeat(train: Train, planned: Array, steps: npt.NDArray[np.intp], rises: Array, seed: int) -> Array:
    """The weight at each probe from one seed, shape (probes,)."""

    def loss(step: int, noise_std: float) -> float:
        changed = planned.copy()
        changed[step - 1] = noise_std
        return _finite(train, changed, seed)

    common, weights = _finite(train, planned, seed), np.empty(len(steps))
    for index, step in enumerate(steps):
        low = float(planned[step - 1])
        high = math.sqrt(low**2 + rises[index])
        mirrored = loss(step, -low) if low > 0 else common
        weights[index] = (loss(step, high) + loss(step, -high) - common - mirrored) / (2 * rises[index])
    return weights


def _finite(train: Train, noise_stds: Array, seed: int) -> float:
    loss = float(train(noise_stds, seed))
    if not math.isfinite(loss):
        raise LetheError(f"train: returned {loss} as the final loss.", remedy="take smaller steps or less noise.")
    return loss
