"""Linear: the description of a linear model that is to be trained, and what training prepares of it and its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from lethe.certificates.training_record import HypothesisClaim
from lethe.errors import InputError
from lethe.run.descended import gradients_by
from lethe.run.known_fields import require_run
from lethe.run.losses import LinearLoss, require_linear_loss
from lethe.run.run import Run
from lethe.run.users import refuse_users
from lethe.train.core.generators import fresh_generator, refuse_predictable, seeded_generators
from lethe.train.core.samplers import refuse_other_records
from lethe.train.core.training_records import WORKERS
from lethe.train.data import as_source
from lethe.train.data.sources.fields import refuse_fields
from lethe.train.fitted import ModelDescription
from lethe.train.linear.blocks import BlockLinearModel, Rows, given_in_blocks
from lethe.train.linear.features import numbers, prepare_features, prepare_targets, refuse_not_finite
from lethe.train.linear.frozen_features import Backbone
from lethe.train.linear.gradients import GradientSums, LinearModel, refuse_other_clipping
from lethe.train.linear.predictor import LinearPredictor
from lethe.train.options import CommonOptions

_CLOSED_FORM = "nothing was left to check: every record's gradient is computed by itself, in closed form"
_NOT_COPIED = "(it could not be copied: whether its first batch stays in it was not looked at)"
_APART = "it keeps records apart in batches other than those that were checked, and keeps nothing of what it saw"

_CPU = torch.device("cpu")
_DTYPES = {"float64": torch.float64, "float32": torch.float32}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Linear(ModelDescription[LinearPredictor]):
    """A linear model of features, whose loss is the run's: any `lethe.losses.LinearLoss`.

    Args:
        classes: the public number of classes, never read off the data; needed for softmax regression, cut or not, unless the loss says it.
        initial: $x_0$, shape (d, k), or (d + 1, k) with the intercept's row last; must not depend on the data. None: zeros.
        dtype: "float64" or "float32", of the stored features and of the released model; the arithmetic is in float64.
        device: where the arithmetic is done, such as "cpu" or "cuda".
    """

    classes: int | None = None
    initial: Any = None
    dtype: str | torch.dtype = "float64"
    device: str | torch.device = "cpu"

    def arithmetic(self) -> tuple[torch.dtype, torch.device]:
        """The dtype of what is stored, and the device; InputError for another type, or a device that cannot be used."""
        chosen = _DTYPES.get(str(self.dtype).removeprefix("torch."))
        if chosen is None:
            raise InputError(f"dtype: got {self.dtype!r}; it needs float64 or float32: coarser noise is not Gaussian.")
        try:
            place = torch.device(self.device)
            torch.zeros(1, device=place).item()  # a device that holds no numbers, such as meta, is refused here
        except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
            raise InputError(
                f"device: got {self.device!r}; it cannot be used: {str(error).splitlines()[0]}", remedy='use "cpu".'
            ) from error
        return chosen, place


class Prepared(NamedTuple):
    """The checked inputs of a loop that trains a linear model; `start` is float64, `dtype` that of the released model."""

    loss: LinearLoss
    model: GradientSums
    start: torch.Tensor
    projected: int
    dtype: torch.dtype
    checked: str
    declared: tuple[HypothesisClaim, ...]


@torch.no_grad()
def prepared(described: Linear, data: Any, run: Run, *, backbone: Backbone | None = None) -> Prepared:
    """The loss, the data and the start, checked.

    Args:
        described: the model.
        data: (features, targets), of shapes (n, d) and (n,) with n = run.records, or a table in blocks; with a backbone any records.
        run: what to do.
        backbone: makes the features; None: they are given.
    Raises:
        InputError: anything about these that cannot be used.
        HypothesisError: the backbone does not keep records apart.
    """
    refuse_users(require_run(run, correlated=True), "a linear model's trainer" if backbone is None else "the trainer of a Head")
    refuse_other_clipping(run)
    loss = require_linear_loss(run.loss).for_classes(described.classes)
    dtype, device = described.arithmetic()
    said: list[HypothesisClaim] = []
    checked = _CLOSED_FORM
    if (blocks := given_in_blocks(data)) is not None:
        if device.type != "cpu":
            raise InputError(
                f"device: got {device}; a table in blocks is computed where its blocks are read, on the CPU.",
                source="device of Linear, or of the head",
                remedy="leave it out, or give tables in memory.",
            )
        if backbone is not None:
            if backbone.copied() is None:
                raise InputError(
                    "backbone: cannot be copied; of a table in blocks each block needs its own, so that no records of two meet.",
                    source="copy.deepcopy(backbone)",
                    remedy="take out what cannot be copied, or compute the features before and give them as a table, with nn.Identity().",
                )
            checked = "checked"
            said.append(HypothesisClaim("records apart", _APART))
        rows = Rows(loss=loss, dtype=dtype, clip_norm=run.clip_norm, method=gradients_by(run), backbone=backbone)
        model = BlockLinearModel(blocks, rows, run)
        projected, columns = model.projected, model.width
        said.extend([WORKERS] if run.batches.secret else [])
    else:
        if backbone is not None:
            source = refuse_fields(as_source(data), "a Head")
            refuse_other_records(run.records, len(source))
            twin = backbone.copied()
            data = tuple(map(torch.cat, zip(*backbone.checked(source, device, twin), strict=True)))
            seen = "" if twin is not None else f" {_NOT_COPIED}"
            checked = f"checked{seen}"
            said.append(HypothesisClaim("records apart", f"{_APART}{seen}"))
            said.extend(HypothesisClaim("data", detail) for detail in getattr(source, "declared", ()))
        if not isinstance(data, tuple | list) or len(data) != 2:
            raise InputError(
                f"data: got {type(data).__name__}; a linear model needs the pair (features, targets).",
                remedy="give arrays of shapes (records, features) and (records,); to stream other data train nn.Linear(...) as a module.",
            )
        table = prepare_features(data[0], feature_norm=loss.feature_norm, intercept=loss.intercept, dtype=dtype, device=device)
        refuse_other_records(run.records, len(table.rows), "the features have {} rows")
        column = prepare_targets(data[1], classes=loss.target_classes, records=run.records, device=device)
        model = LinearModel(loss, table.rows, column, clip_norm=run.clip_norm, method=gradients_by(run))
        projected, columns = table.projected, table.rows.shape[1]
    start = starting_point(described.initial, (columns, loss.outputs), device)
    return Prepared(loss, model, start, projected, dtype, checked, tuple(said))


def generators_of(options: CommonOptions, device: torch.device) -> tuple[torch.Generator, ...]:
    """A generator of batches, on the CPU, and one of noise.

    Args:
        options: a seed, generators, or none of these: fresh entropy.
        device: of the noise.
    Raises:
        InputError: a seed together with generators, one generator for both, or one on another device.
    """
    given = {"batch_generator": (options.batch_generator, _CPU), "noise_generator": (options.noise_generator, device)}
    refuse_predictable(options.seed, options.batch_generator, options.noise_generator)
    for name, (generator, place) in given.items():
        if generator is not None and (not isinstance(generator, torch.Generator) or generator.device.type != place.type):
            raise InputError(f"{name}: got {generator!r}; it needs a torch.Generator on {place.type}.")
    if options.seed is not None:
        return seeded_generators(options.seed, (_CPU, device))
    return tuple(one if isinstance(one, torch.Generator) else fresh_generator(place) for one, place in given.values())


def starting_point(initial: Any, shape: tuple[int, int], device: torch.device) -> torch.Tensor:
    """$x_0$ in float64: zeros, or what is given.

    Args:
        initial: as of `Linear`.
        shape, device: of the result.
    Raises:
        InputError: another shape, or an entry that is not finite.
    """
    if initial is None:
        return torch.zeros(shape[::-1], dtype=torch.float64, device=device).T  # as gradients are: a faster product with rows
    start = numbers("initial", initial)
    if start.shape != shape:
        raise InputError(f"initial: got shape {start.shape}; it needs {shape}: features (and a last row for an intercept) by outputs.")
    refuse_not_finite("initial", start)
    return torch.tensor(start, dtype=torch.float64, device=device)
