"""Carry out a Run on records: the loop of `lethe.train` with gradients that are read chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable

import torch

from lethe.estimators.choice.last_iterates import LastIterates
from lethe.estimators.choice.mechanism import AnyRecords, RandomSources
from lethe.mechanisms.base import Array
from lethe.run.descended import descends_envelope
from lethe.run.losses.linear import LinearLoss
from lethe.run.precision import Precision
from lethe.run.run import Run
from lethe.train.core.iterates import refuse_overflow
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import Batch, draw_batches
from lethe.train.linear.loop import descend, linear_noise, linear_precision
from lethe.train.network.noise.gaussian import NetworkNoise


def _gradient_sums(records: AnyRecords, run: Run) -> Callable[[torch.Tensor, Batch], torch.Tensor]:
    """The gradients that `descend` asks for; what bounds them is the rows' norm, and the envelope where the run has one."""
    assert run.clip_norm is None or run.clip_method == "envelope"  # `RunMechanism` makes no other
    bounded = records.with_envelope(run.clip_norm if descends_envelope(run) else None)

    def of_batch(parameters: torch.Tensor, batch: Batch) -> torch.Tensor:
        places = batch if isinstance(batch, slice) else batch.numpy()
        return torch.from_numpy(bounded.gradient_sum(parameters.numpy(), places))

    return of_batch


def zero_start_precision(run: Run, loss: LinearLoss, rows: int) -> Precision | None:
    """The precision in which `carry_out` keeps the iterates of a run; None: all are released.

    Args:
        run: planned.
        loss: with the number of its classes.
        rows: D, the weights of one score.
    """
    return linear_precision(run, loss, torch.zeros((rows, loss.outputs), dtype=torch.float64), in_blocks=False)


@torch.inference_mode()
def carry_out(run: Run, records: AnyRecords, draws: RandomSources, *, averaged: int = 1) -> tuple[Array, Run]:
    """The mean of the last iterates, shape (D, k), started at zero, and the run as it was recorded.

    Args:
        run: planned; without clipping but of envelopes, so its loss's gradient bound must hold for `records`.
        records: rows of norm at most 1.
        draws: generators of batches and noise.
        averaged: how many of the last iterates; 1: the last itself.
    Raises:
        HypothesisError: several, and the run releases the last alone.
        InputError: more than the run has steps, or none.
        LetheError: the iterates overflowed.
    """
    iterates = LastIterates(run, averaged)
    shape = (records.columns + (1 if records.intercept else 0), records.loss.outputs)
    start = torch.zeros(shape, dtype=torch.float64)
    drawn = run.uncorrelated  # what is drawn anew at each step; `noise` correlates it
    recorder, noise = Recorder(drawn, seeded=draws.seeded), linear_noise(run, NetworkNoise(draws.noise))
    precision = zero_start_precision(run, records.loss, shape[0])
    batches = draw_batches(drawn, draws.batches)
    gradient_sum = _gradient_sums(records, run)
    last = descend(drawn, start, gradient_sum, batches, noise.add_to, recorder=recorder, finished=iterates.add, precision=precision)
    refuse_overflow([last], drawn, remedy="take fewer passes or a larger epsilon.")
    recorded = noise.executed(recorder.run(drawn, enforced=True).replace(precision=precision))
    return iterates.mean().numpy().copy(), recorded
