"""Influence of noise by retraining with slightly more noise at one step; and the training of a linear model that can be repeated. It works
for any model, at the cost of many trainings. Users call `retraining_influence`; `adjoint.py` repeats trainings by `LinearProblem`. A probe
is a step whose influence is measured.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from lethe.calculus.domains import require_count
from lethe.errors import InputError, LetheError
from lethe.influence.data import AuxiliaryData, Estimate, PublicData, SyntheticData, require_public, require_statement
from lethe.run.effective_loss import gradients_by
from lethe.run.losses.linear import LinearLoss, require_linear_loss
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.train.core.generators import seeded_generators
from lethe.train.core.iterates import refuse_overflow
from lethe.train.core.proximal import Proximal, proximal_step
from lethe.train.core.samplers import Batch, draw_batches
from lethe.train.linear.gradients import LinearModel, losses_of, refuse_other_clipping
from lethe.train.linear.loop import descend
from lethe.train.linear.models import prepare_features, prepare_targets

_CPU = torch.device("cpu")
_RISE = 1.0  # u_t as a share of v_t
_ALL_OF, _OTHERWISE = 32, 16  # so many steps are all measured; else so many of them


Train = Callable[[Array, int], float]
"""A training that can be repeated exactly, of whatever model, on data that are not private: (noise_stds, seed) -> the final loss.

`noise_stds`, shape (T,), are in parameter units and signed: step t must add noise_stds[t] times standard normal numbers that depend on the
seed and on t only. Draw them at steps without noise too. The seed is of these numbers, the batches and whatever else is random.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicTrainer:
    """A training of any model (a network, say), with the reason why what it trains on is no secret.

    Args:
        train: as `Train` says.
        statement: which data it trains on and why these are public or made up.
    """

    basis: ClassVar[Literal["public"]] = "public"
    train: Train
    statement: str

    def __post_init__(self) -> None:
        require_statement(self.statement)
        if not callable(self.train):
            raise InputError(f"train: got {self.train!r}; it needs a function of (noise_stds, seed).")

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
    Trainings with the same seed share batches and all standard normal numbers $\xi$; flipping the sign of $\xi_t$ alone cancels all that is
    odd in $\nu_t$. What is measured is the slope of the expected loss between the variances $v_t$ and $v_t + u_t$: the derivative on a
    quadratic, close to it elsewhere if noise is small. The loss is that of the auxiliary data, without the regulariser.

    Args:
        run: with its noise set, to the level that is being planned; `plan` finds it for constant noise.
        data: SyntheticData, PublicData, or a PublicTrainer for another model.
        repeats: r >= 2, seeds to average over.
        seed: integer >= 0, from which the r seeds are made.
        probes: at how many steps to measure, closer together towards the end, or at which (counted from 1); None: all up to 32, else 16.
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
    rises = _RISE * np.where(planned > 0, planned**2, (planned[planned > 0] ** 2).mean())
    train = data.train if isinstance(data, PublicTrainer) else linear_problem(run, data).train
    seeds = repeat_seeds(seed, repeats)
    if isinstance(data, PublicTrainer):
        first, second = (_finite(train, planned, seeds[0]) for _ in range(2))
        if first != second:
            raise InputError(
                f"train: two trainings with the same noise and seed ended at {first!r} and {second!r}; they need to end at one number.",
                source="PublicTrainer.train",
                remedy="derive all randomness from the seed, and use deterministic arithmetic.",
            )
    samples = [_one_repeat(train, planned, steps, rises, number) for number in seeds]
    detail = f"{repeats} paired retrainings at {len(steps)} of {run.total_steps} steps on {data.origin}"
    return Estimate.of_samples(samples, steps=run.total_steps, probes=steps, basis=data.basis, detail=detail)


def choose_probes(steps: int, probes: int | Sequence[int] | None = None) -> npt.NDArray[np.intp]:
    """The steps to measure, counted from 1, increasing; the first and the last are among them unless a list says otherwise.

    The number of steps left after a probe falls by a constant factor, since the influence bends most near the end, where quick modes live.
    """
    if isinstance(probes, Sequence | np.ndarray) and not isinstance(probes, str | bytes):
        named = [require_count("probes", step, high=steps) for step in probes]
        if not named or len(set(named)) < len(named):
            raise InputError(f"probes: got {list(probes)!r}; it needs at least one step, none twice.")
        return np.array(sorted(named), dtype=np.intp)
    if probes is None:
        probes = steps if steps <= _ALL_OF else _OTHERWISE
    count = require_count("probes", probes, low=min(2, steps))
    steps_left = np.arange(steps, 0, -1) if count >= steps else np.geomspace(steps, 1, count)  # the last one included
    return np.unique(steps + 1 - np.round(steps_left).astype(np.intp))


def _one_repeat(train: Train, planned: Array, steps: npt.NDArray[np.intp], rises: Array, seed: int) -> Array:
    """The weight at each probe from one seed, shape (probes,)."""

    def loss(step: int, noise_std: float) -> float:
        return _finite(train, np.where(np.arange(len(planned)) == step, noise_std, planned), seed)

    common, weights = _finite(train, planned, seed), list[float]()
    for place in (steps - 1).tolist():
        low, rise = float(planned[place]), float(rises[place])
        high = math.sqrt(low**2 + rise)
        mirrored = loss(place, -low) if low > 0 else common
        weights.append((loss(place, high) + loss(place, -high) - common - mirrored) / (2 * rise))
    return np.array(weights)


def _finite(train: Train, noise_stds: Array, seed: int) -> float:
    """The final loss of one training; an error where it overflowed."""
    loss = float(train(noise_stds, seed))
    if not math.isfinite(loss):
        raise LetheError(f"training overflowed: train returned {loss} as the final loss.", remedy="take smaller steps or less noise.")
    return loss


class Trajectory(NamedTuple):
    """The batches of a training, the parameters before each step and after the last, shape (d, k), and before each proximal step."""

    batches: list[Batch]
    before: list[torch.Tensor]
    unproximated: list[torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearProblem:
    """A run, the linear model that its loss names, and data to train it on: rows as the trainer prepares them, targets of shape (n, 1).

    The loop is that of `fit`; what differs is where noise comes from. Each step draws its normal numbers whether it uses them or not,
    so they depend on the seed and the step alone, not on which other steps are noisy, and a negative noise_std mirrors them.
    """

    run: Run
    rows: torch.Tensor
    column: torch.Tensor
    loss: LinearLoss
    prox: Proximal

    def train(self, noise_stds: Array, seed: int) -> float:
        """The mean loss after the last step, without the regulariser: a `Train`."""
        last = self._descend(noise_stds, seed, self._batches(seed), self.prox)
        return float(losses_of(self.loss, self.rows @ last, self.column).mean())

    def path(self, noise_stds: Array, seed: int) -> Trajectory:
        """All iterates of the training."""
        unproximated, before = list[torch.Tensor](), [torch.zeros(self.rows.shape[1], self.loss.outputs, dtype=torch.float64)]

        def noted(parameters: torch.Tensor, step_size: float) -> torch.Tensor:
            unproximated.append(parameters)
            before.append(self.prox(parameters, step_size))
            return before[-1]

        batches = self._batches(seed)
        self._descend(noise_stds, seed, batches, noted)
        return Trajectory(batches=batches, before=before, unproximated=unproximated)

    def _batches(self, seed: int) -> list[Batch]:
        return list(draw_batches(self.run, seeded_generators(seed, (_CPU, _CPU))[0]))

    def _descend(self, noise_stds: Array, seed: int, batches: list[Batch], prox: Proximal) -> torch.Tensor:
        """One training on fixed batches with the noise of a seed; all that differs between two calls is `noise_stds`."""
        run, generator = self.run, seeded_generators(seed, (_CPU, _CPU))[1]
        start = torch.zeros(self.rows.shape[1], self.loss.outputs, dtype=torch.float64)
        model = LinearModel(self.loss, self.rows, self.column, clip_norm=run.clip_norm, method=gradients_by(run))

        def add_noise(tensors: Sequence[torch.Tensor], noise_std: float) -> None:
            tensors[0].add_(noise_std * torch.randn(start.shape, generator=generator, dtype=torch.float64))

        def of_step(step: int, _: torch.Tensor) -> float:
            return float(noise_stds[step - 1])

        last = descend(run, start, model.clipped_gradient_sum, batches, add_noise, noise_of_step=of_step, prox=prox)
        refuse_overflow([last], run)
        return last


def linear_problem(run: Run, data: AuxiliaryData) -> LinearProblem:
    """The run on the auxiliary data, checked as `fit` checks its arguments."""
    refuse_other_clipping(run)
    loss, prox, records = require_linear_loss(run.loss), proximal_step(run.regularisers), data.records(run)
    loss = loss.for_classes(records.classes)
    column = prepare_targets(records.targets, classes=loss.target_classes, records=run.records, device=_CPU)
    return LinearProblem(run=run, rows=prepared_rows(records.features, loss), column=column, loss=loss, prox=prox)


def prepared_rows(features: Array, loss: LinearLoss) -> torch.Tensor:
    """Features as the trainer prepares them, projected and with the intercept's column, in float64."""
    return prepare_features(features, feature_norm=loss.feature_norm, intercept=loss.intercept, dtype=torch.float64, device=_CPU).rows


def refuse_pass_averages(run: Run) -> None:
    """Raise InputError if the run's passes end at an average: a step then is not a map of the iterate before it alone."""
    if run.pass_averages is not None:
        raise left_to_retraining("pass_weights: set; this estimate follows iterates, not averages of a pass.", "run.pass_weights")


def left_to_retraining(what: str, source: str) -> InputError:
    """The refusal of what only `retraining_influence` can estimate."""
    return InputError(what, source=source, remedy="use retraining_influence, which needs no derivative.")


def repeat_seeds(seed: int, repeats: int) -> list[int]:
    """A seed for each repeat, unrelated to those of another `seed`."""
    return [int(child.generate_state(1, np.uint64)[0] >> np.uint64(1)) for child in np.random.SeedSequence(seed).spawn(repeats)]
