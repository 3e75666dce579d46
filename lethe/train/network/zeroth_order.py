r"""Training without gradients: two forward passes a step, along one random direction, in the memory of inference.

For models too large for backward passes; `fit` calls `train_along_directions` for the clip method "directional". $f_i$ is the loss of
record i at parameters x, h a small step, C the clip norm.

Records' slopes $(f_i(x + hu) - f_i(x - hu))/2h$ along $u \sim N(0, I)$ are clipped to $[-C, C]$; their sum gets noise, and says how far to
go along u: one number. Where only the last iterate is released, along $u/\|u\|$, with noise in all directions: docs/theory.md, section 20.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lethe.calculus.domains import require_positive
from lethe.certificates.records import HypothesisClaim
from lethe.errors import HypothesisError, InputError
from lethe.run.known_fields import refuse_users, require_run
from lethe.run.run import Run
from lethe.train.callbacks.notifier import Notifier
from lethe.train.callbacks.progress import progress_of
from lethe.train.clip.clipper import ISOLATIONS
from lethe.train.clip.isolated import records_of, rows_of
from lethe.train.clip.module_state import digests
from lethe.train.clip.rules.registry import refuse_model
from lethe.train.core.comparison import ALLOWED, BATCH_STATISTICS, sample
from lethe.train.core.generators import fresh_generator, seeded_generators
from lethe.train.core.iterates import refuse_overflow
from lethe.train.core.recorder import Recorder
from lethe.train.core.training_records import claims, network_record
from lethe.train.data.batches import BatchStream, LoadedBatch
from lethe.train.data.loaders import as_source
from lethe.train.distributed.workers import Workers
from lethe.train.fitted import Diagnostics, Fitted
from lethe.train.network.batch_losses import BatchLosses, LossFunction
from lethe.train.network.noise.training_noise import TrainingNoise, own_sources
from lethe.train.network.plan import trained_parameters
from lethe.train.network.steps import Descent
from lethe.train.network.trainer import Module
from lethe.train.options import TrainOptions
from lethe.train.planning import TrainingPlan

DIRECTIONAL = ("directional", "directional_isotropic")  # where all iterates are released, and where only the last is
_PLACE = HypothesisClaim("rounding", "a record's loss is rounded alike wherever it stands in batches of one size and padded length")
_EXACT = HypothesisClaim("slopes", "a difference of two float64 losses is their true one: what rounding adds to it is not counted")


class Direction:
    """A normal vector, of norm 1 if `unit`, that its seed makes anew whenever it is asked for, so that it takes no memory."""

    def __init__(self, parameters: Iterable[nn.Parameter], seed: int, *, unit: bool) -> None:
        self._parameters, self._seed, self.length = list(parameters), seed, 1.0
        if unit:
            self.length = float(torch.stack([part.double().square().sum() for _, part in self.parts()]).sum().sqrt())

    def parts(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """The direction in each parameter, times `length`."""
        drawn = torch.Generator(device=(device := self._parameters[0].device)).manual_seed(self._seed)
        for parameter in self._parameters:
            yield parameter, torch.randn(parameter.shape, generator=drawn, dtype=parameter.dtype, device=device)

    def move(self, length: float) -> None:
        """Move the parameters so far along it."""
        for parameter, part in self.parts():
            parameter.add_(part, alpha=length / self.length)


class Slopes:
    """The clipped slopes of records along a direction, by two forward passes without a graph, which differ by the direction alone."""

    def __init__(self, model: nn.Module, losses: BatchLosses, run: Run, smoothing: float, parameter: nn.Parameter) -> None:
        self._model, self._losses, self._smoothing, self._device = model, losses, smoothing, parameter.device
        self._bound, self._allowed = run.clip_bound * (1.0 - 2.0**-12), ALLOWED[parameter.dtype]  # room for a sum's roundings

    def total(self, batch: LoadedBatch, direction: Direction) -> Tensor:
        """Their sum over the rows that count, float64, shape (1,); a record whose slope is no number adds nothing."""
        rows = self._losses.batch(batch.tensors, self._device, batch.counted)
        direction.move(self._smoothing)
        ahead = self._of(rows)
        direction.move(-2.0 * self._smoothing)
        slopes = (ahead - self._of(rows)) / (2.0 * self._smoothing)
        direction.move(self._smoothing)
        clipped = slopes.nan_to_num(nan=0.0).clamp(-self._bound, self._bound)
        return (clipped if batch.counted is None else clipped[batch.counted.to(self._device)]).sum().reshape(1)

    def _of(self, rows: Any) -> Tensor:
        before = digests(self._model)
        losses, records = self._losses(rows), records_of(rows)
        if digests(self._model) != before:
            raise HypothesisError(
                "the model writes its parameters or buffers in the forward pass, in eval mode too.",
                remedy="take out running means and memories, and what changes weights as it reads them.",
            )
        if losses.shape not in ((records,), (records, 1)):
            raise InputError(f"loss: got shape {tuple(losses.shape)}; it needs one loss a record.", remedy='set reduction="none".')
        return losses.double().reshape(records)

    def check(self, batch: LoadedBatch) -> None:
        """Refuse a model in which a record's loss depends on the others of its batch."""
        rows = self._losses.batch(batch.tensors, self._device, batch.counted)
        together = self._of(rows).nan_to_num(0.0, 0.0, 0.0)
        for row in sample(range(len(together)), 3):
            batch_loss, isolated_loss = float(together[row]), float(self._of(rows_of(rows, [row]))[0].nan_to_num(0.0, 0.0, 0.0))
            if not abs(batch_loss - isolated_loss) <= self._allowed * (1.0 + float(together.abs().mean())):
                raise InputError(
                    f"the loss of record {row} is {batch_loss:.6g} in its batch and {isolated_loss:.6g} alone.", remedy=BATCH_STATISTICS
                )


@torch.no_grad()
def train_along_directions(
    model: Module, loss: LossFunction, plan: TrainingPlan, options: TrainOptions, notifier: Notifier, optimizer: object
) -> Fitted[Module]:
    """Train a module in place without gradients, as `lethe.train.fit` says of the method "directional"."""
    losses = BatchLosses(model, loss, source := as_source(plan.data))
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        refuse_model(model)
        return _trained(model, losses, source, plan, options, notifier, optimizer)
    finally:
        for module, training in modes:
            module.training = training


def _trained(
    model: Module, losses: BatchLosses, source: Any, plan: TrainingPlan, options: TrainOptions, notifier: Notifier, optimizer: object
) -> Fitted[Module]:
    named = trained_parameters(model)
    run = _checked(plan.run, options, optimizer, named)
    device = next(iter(named.values())).device
    (batches, noise), sizes, stds = own_sources(run, device, options), run.step_sizes.tolist(), run.noise_stds.tolist()
    drawn = fresh_generator(batches.device) if options.seed is None else seeded_generators(options.seed, (batches.device,) * 3)[2]
    directions = torch.randint(2**62, (run.total_steps,), generator=drawn).tolist()
    slopes, recorder = Slopes(model, losses, run, options.smoothing, next(iter(named.values()))), Recorder(run, seeded=options.seeded(run))
    update = Descent(named, run, TrainingNoise(noise)) if run.release == "last" else None
    stream = BatchStream(run, source, batches, physical_size=options.physical_size or run.batch_size)  # of one size
    notifier.begin(run.replace(precision=update and update.precision), seeded=recorder.seeded)
    finished = progress_of(options.progress)
    try:
        moved = torch.zeros(1, dtype=torch.float64, device=device)
        for batch in stream:
            direction = Direction(named.values(), directions[batch.step - 1], unit=update is not None)
            if len(batch.tensors[0]):
                if batch.step <= 3 and options.isolation == "checked":
                    slopes.check(batch)
                moved += slopes.total(batch, direction)
                if update is not None:
                    update.show()  # the iterate itself, not what moving there and back has left of it
            if not batch.last:
                continue
            if update is not None:
                update(batch.step, {parameter: part.double() * (float(moved) / direction.length) for parameter, part in direction.parts()})
            else:
                moved *= -sizes[batch.step - 1] / run.batch_size
                noise.add_to([moved], stds[batch.step - 1])
                direction.move(float(moved))
            moved.zero_()
            recorder.note(step_size=sizes[batch.step - 1], noise_std=stds[batch.step - 1], batch=batch.whole)
            finished(batch.step, run.total_steps)
            if notifier.live:
                notifier.step(recorder)
    finally:
        stream.close()
    refuse_overflow(list(named.values()), run)
    recorded = recorder.run(run, enforced=False).replace(precision=update and update.precision)
    claims_made = claims(data=source, isolation=options.isolation, optimiser=False, users=False, private=notifier.private)
    record = network_record(recorded, model, (*claims_made, _PLACE, *(() if update is None else (_EXACT,))), isolation=options.isolation)
    report = Diagnostics.of(run, steps=recorder.steps, gradients="none: two forward passes")
    return Fitted(model=model, run=recorded, record=record, checked=f"losses in batches: {options.isolation}", diagnostics=report)


def _checked(run: Run, options: TrainOptions, optimizer: object, named: Mapping[str, nn.Parameter]) -> Run:
    """The run of this clip method; an error where it, or an option, asks for what this training does not do."""
    refuse_users(require_run(run), "training along directions")
    options.refuse_for("training along directions", "method", "physical_size", "isolation", "smoothing")
    require_positive("smoothing", options.smoothing)
    if options.isolation not in ISOLATIONS:
        raise InputError(f"isolation: got {options.isolation!r}; it needs checked or declared.")
    method, float64 = DIRECTIONAL[run.release == "last"], all(parameter.dtype == torch.float64 for parameter in named.values())
    requested = {name: getattr(run, name) is not None for name in ("clip_groups", "pass_weights", "noise_budget", "sparse_selection")} | {
        "clip_norm: null": run.clip_norm is None,
        f"clip_method: {run.clip_method}": run.clip_method not in ("clip", method),
        "release: last of a model that is not float64": run.release == "last" and not float64,
        "regulariser": bool(run.regularisers) and run.release == "all",
        "isolation: enforced": options.isolation == "enforced",
        "noise_policy": options.noise_policy is not None,
        "optimizer": optimizer is not None,
        "several processes": Workers.current().several,
    }
    if refused := [name for name, is_requested in requested.items() if is_requested]:
        raise InputError(f"{refused[0]}: this training takes plain steps, of clip_method {method}.", remedy="use method: clip.")
    return run.replace(clip_method=method)
