"""Running a planned gradient descent on records, with PyTorch, which is loaded where this file is.

`RunMechanism` (runs.py) calls `carry_out` with its planned run and the records; only here is PyTorch needed, so that estimators that fit by
other mechanisms work without loading it.
"""

import torch

from lethe.calculus.domains import require_count
from lethe.errors import HypothesisError
from lethe.estimators.choice.mechanism import AnyRecords, RandomSources
from lethe.mechanisms.base import Array
from lethe.run.effective_loss import descends_envelope
from lethe.run.losses.linear import LinearLoss
from lethe.run.precision import Precision
from lethe.run.run import Run
from lethe.train.core.generators import fresh_generator
from lethe.train.core.iterates import refuse_overflow
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import Batch, draw_batches
from lethe.train.linear.loop import descend, linear_noise, linear_precision
from lethe.train.network.noise.gaussian import NetworkNoise


def zero_start_precision(run: Run, loss: LinearLoss, rows: int) -> Precision | None:
    """The precision in which `carry_out` keeps the iterates of a planned run, D rows of weights; None: all are released."""
    return linear_precision(run, loss, torch.zeros((rows, loss.outputs), dtype=torch.float64), in_blocks=False)


@torch.inference_mode()
def carry_out(run: Run, records: AnyRecords, draws: RandomSources, *, averaged: int = 1) -> tuple[Array, Run]:
    r"""The mean $\frac1a\sum_{t>T-a} x_t$ of the last iterates, shape (D, k), started at zero, and the run as it was recorded."""
    # Nothing is clipped but by envelopes, so the loss's gradient bound must hold for the records.
    first = run.total_steps - require_count("count", averaged, high=run.total_steps) + 1
    if averaged > 1 and run.release == "last":
        raise HypothesisError("release: last, and a mean of iterates tells of those that nobody may see.", remedy="set release: all.")
    total = torch.zeros(())

    def add(step: int, iterate: torch.Tensor) -> None:
        nonlocal total
        if step >= first:
            total = iterate if step == first else total + iterate

    shape = (records.columns + (1 if records.intercept else 0), records.loss.outputs)
    drawn = run.uncorrelated  # what is drawn anew at each step; `noise` correlates it
    secret, noises = (
        fresh_generator(torch.device("cpu")) if generator is None else generator for generator in (draws.batches, draws.noise)
    )
    recorder, noise = Recorder(drawn, seeded=draws.seeded), linear_noise(run, NetworkNoise(noises))
    precision = zero_start_precision(run, records.loss, shape[0])
    start, batches = torch.zeros(shape, dtype=torch.float64), draw_batches(drawn, secret)
    assert run.clip_norm is None or run.clip_method == "envelope"  # `RunMechanism` makes no other
    bounded = records.with_envelope(run.clip_norm if descends_envelope(run) else None)

    def gradient_sum(parameters: torch.Tensor, batch: Batch) -> torch.Tensor:
        index = batch if isinstance(batch, slice) else batch.numpy()
        return torch.from_numpy(bounded.gradient_sum(parameters.numpy(), index))

    last = descend(drawn, start, gradient_sum, batches, noise.add_to, recorder=recorder, finished=add, precision=precision)
    refuse_overflow([last], drawn, remedy="take fewer passes or a larger epsilon.")
    recorded = noise.executed(recorder.run(drawn, enforced=True).replace(precision=precision))
    return (total / averaged if averaged > 1 else total).numpy().copy(), recorded
