r"""Hong, Wang & Zhou 2022, Figure 1, left: the influence of each step's noise on a network's final loss, by retraining.

What the picture shows cannot be read; this is its network, clip norm, step size and budget on synthetic sets, with sizes chosen here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lethe.errors import InputError, MissingExtraError
from lethe.run.batches import Full
from lethe.run.run import Run
from lethe_experiments.base import Cell, Options, Progress, Reproduction
from lethe_experiments.hong.figure_1 import BUDGET, CLIP_NORM, STEP_SIZE
from lethe_experiments.hong.samples import COMPONENTS, DATA_SCALE, gaussian_sample

if TYPE_CHECKING:
    from lethe.influence.data import Estimate
    from lethe_experiments.hong.two_layer_network import Records, TwoLayerNetwork

COLUMNS = ("data_scale", "step", "steps", "influence", "error", "rate")
REPEATS = 4
_SET_SEED, _SEED = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftPlan:
    """How much of it is computed.

    Args:
        scales: norms of the longest record.
        records: N.
        classes: of the synthetic set.
        hidden: units of the network.
        steps: T.
        probes: at how many steps the influence is measured.
        repeats: pairs of trainings, >= 2, each with random numbers of its own.
    """

    scales: tuple[float, ...] = (5.0, 10.0, 20.0)
    records: int = 1000
    classes: int = 2
    hidden: int = 100
    steps: int = 50
    probes: int = 8
    repeats: int = REPEATS


def hong_figure_1_left(progress: Progress | None = None, options: Options | None = None, *, plan: LeftPlan | None = None) -> Reproduction:
    """Hong, Wang, Zhou 2022, Figure 1, left: the influence of each step's noise by retraining, at three data scales (takes a minute).

    Args:
        progress: told (scales done, scales in all).
        options: repeats, >= 2; there is no data to give, and no larger extent.
        plan: what to compute.
    Raises:
        InputError: data or a larger extent is asked for, or one repeat.
        MissingExtraError: PyTorch is not installed.
    """
    if find_spec("torch") is None:
        raise MissingExtraError(
            "hong-figure-1-left trains, and needs PyTorch, which is not installed.", remedy='pip install "lethe-dp[train]"'
        )
    from lethe.influence import fit_exponential

    chosen, work = options or Options(), plan or LeftPlan()
    if chosen.data is not None or chosen.full:
        raise InputError("hong-figure-1-left is of synthetic sets of one size; it takes --repeats alone.", remedy="leave out the others.")
    repeats = chosen.repeats or work.repeats
    rows: list[tuple[Cell, ...]] = []
    for count, scale in enumerate(work.scales, 1):
        estimate = measured_influence(work, scale, repeats)
        rate = fit_exponential(estimate).rate if estimate.weights.min() > 0.0 else None
        measured = zip(estimate.probes.tolist(), estimate.weights.tolist(), estimate.errors.tolist(), strict=True)
        rows += [(scale, step, work.steps, weight, error, rate) for step, weight, error in measured]
        if progress is not None:
            progress(count, len(work.scales))
    return Reproduction(
        name="hong-figure-1-left",
        title="Hong, Wang & Zhou 2022, Figure 1, left: influence of each step's noise on the final loss, by retraining",
        source="Hong, Wang, Zhou, FAccT 2022, doi:10.1145/3531146.3533070, Section 5 and Figure 1.",
        shape="influence",
        columns=COLUMNS,
        rows=tuple(rows),
        notes=(
            f"Chosen here, as the picture cannot be read: synthetic sets of {work.records} records in {COMPONENTS} dimensions with "
            f"{work.classes} classes, {work.hidden} hidden units where the paper has 1000, T = {work.steps}, scales "
            f"{', '.join(f'{scale:g}' for scale in work.scales)}. Of the paper: step {STEP_SIZE:g}, clip norm {CLIP_NORM:g}, full batches, "
            f"R = {BUDGET:.6g}, equal noise at every step.",
            "influence: rise of the mean training loss a unit of noise variance at that step, in parameter units, between once and twice "
            f"the noise there; error: standard error over {repeats} repeats. rate: r of the nearest r^(T-t), where all are above 0. "
            "Below 0 more noise there lowers the training loss.",
        ),
    )


def measured_influence(plan: LeftPlan, scale: float, repeats: int) -> Estimate:
    """At one scale of the data."""
    from lethe.influence.retraining import PublicTrainer, retraining_influence
    from lethe_experiments.hong.two_layer_network import Records, TwoLayerNetwork, torch

    sample = gaussian_sample(plan.records, plan.classes, _SET_SEED)
    records = Records.of(sample.features * (scale / DATA_SCALE), sample.labels, plan.classes, torch.float64)
    network = TwoLayerNetwork(inputs=COMPONENTS, hidden=plan.hidden, outputs=plan.classes)
    run = Run(
        records=plan.records,
        batches=Full(),
        steps=plan.steps,
        step_size=STEP_SIZE,
        clip_norm=CLIP_NORM,
        noise_multiplier=math.sqrt(plan.steps / BUDGET),
        release="all",
        neighbours="zero_out",
    )
    trainer = PublicTrainer(train=partial(final_loss, network, records), statement="synthetic Gaussian records")
    return retraining_influence(run, trainer, repeats=repeats, seed=_SEED, probes=plan.probes)


def final_loss(network: TwoLayerNetwork, records: Records, noise_stds: npt.NDArray[np.float64], seed: int) -> float:
    """The training loss after noisy descent whose noise at each step is drawn from seed and step alone, whatever its size and sign."""
    from lethe.train.core.generators import seeded_generators
    from lethe_experiments.hong.two_layer_network import torch

    start, drawn = seeded_generators(seed, (torch.device("cpu"), torch.device("cpu")))
    parameters = network.initial(start, torch.float64)
    for noise_std in noise_stds.tolist():
        parameters -= network.clipped_gradient_sum(parameters, records, CLIP_NORM) * (STEP_SIZE / len(records.features))
        parameters += noise_std * torch.randn(parameters.shape, generator=drawn, dtype=torch.float64)
    return network.loss(parameters, records)
