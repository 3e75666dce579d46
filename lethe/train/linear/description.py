"""Linear: the description of a linear model that is to be trained, and what training prepares of it and its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from lethe.certificates.training_record import HypothesisClaim
from lethe.errors import InputError
from lethe.run.descended import gradients_by
from lethe.run.known_fields import require_run
from lethe.run.losses import LinearLoss
from lethe.run.run import Run
from lethe.run.users import refuse_users
from lethe.train.core.declared import WORKERS
from lethe.train.core.generators import fresh_generator, refuse_predictable, seeded_generators
from lethe.train.core.samplers import refuse_other_records
from lethe.train.fitted import ModelDescription
from lethe.train.linear.blocks import BlockBackbone, BlockLinearModel, PreparedBlocks, given_in_blocks
from lethe.train.linear.features import numbers, prepare_features, prepare_targets, refuse_not_finite
from lethe.train.linear.gradients import GradientSums, LinearModel, refuse_other_clipping
from lethe.train.linear.links import linear_loss, link_of
from lethe.train.linear.predictor import LinearPredictor
from lethe.train.options import TrainOptions

CLOSED_FORM = "nothing was left to check: every record's gradient is computed by itself, in closed form"

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
        """The dtype of what is stored, and the device.

        Raises:
            InputError: another type, or a device that cannot be used.
        """
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
    """The checked inputs of a loop that trains a linear model.

    Args:
        loss: with the number of its classes.
        model: gives the gradients of the data.
        start: shape (d, k), or (d + 1, k) with the intercept's row last, float64.
        projected: rows of the data that were longer than the feature norm.
        dtype: of the released model.
        declared: what the certificate rests on besides.
    """

    loss: LinearLoss
    model: GradientSums
    start: torch.Tensor
    projected: int
    dtype: torch.dtype
    declared: tuple[HypothesisClaim, ...]


def prepared(described: Linear, data: Any, run: Run, *, backbone: BlockBackbone | None = None) -> Prepared:
    """The loss, the data and the start, checked.

    Args:
        described: the model.
        data: (features, targets), of shapes (n, d) and (n,) with n = run.records, or a table in blocks.
        run: what to do.
        backbone: of a table in blocks, makes the features; None: they are what is stored.
    Raises:
        InputError: anything about these that cannot be used.
    """
    refuse_users(require_run(run, correlated=True), "a linear model's trainer")
    refuse_other_clipping(run)
    loss = linear_loss(run.loss).for_classes(described.classes)
    dtype, device = described.arithmetic()
    if (blocks := given_in_blocks(data)) is not None:
        if device.type != "cpu":
            raise InputError(
                f"device: got {device}; a table in blocks is computed where its blocks are read, on the CPU.",
                source="device of Linear, or of the head",
                remedy="leave it out, or give tables in memory.",
            )
        how = PreparedBlocks(loss=loss, dtype=dtype, clip_norm=run.clip_norm, method=gradients_by(run), backbone=backbone)
        model = BlockLinearModel(blocks, how, run)
        projected, columns = model.projected, model.width
        declared = (HypothesisClaim("workers", WORKERS),) if run.batches.secret else ()
    elif isinstance(data, tuple | list) and len(data) == 2:
        features, targets = data
        table = prepare_features(features, feature_norm=loss.feature_norm, intercept=loss.intercept, dtype=dtype, device=device)
        refuse_other_records(run.records, len(table.rows), "the features have {} rows")
        column = prepare_targets(targets, classes=loss.target_classes, records=run.records, device=device)
        model = LinearModel(link_of(loss), table.rows, column, clip_norm=run.clip_norm, outputs=loss.outputs, method=gradients_by(run))
        projected, columns, declared = table.projected, table.rows.shape[1], ()
    else:
        raise InputError(
            f"data: got {type(data).__name__}; a linear model needs the pair (features, targets).",
            remedy="give arrays of shapes (records, features) and (records,); to stream other data train nn.Linear(...) as a module.",
        )
    start = starting_point(described.initial, (columns, loss.outputs), device)
    return Prepared(loss, model, start, projected, dtype, declared)


def generators_of(options: TrainOptions, device: torch.device) -> tuple[torch.Generator, ...]:
    """A generator of batches, on the CPU, and one of noise.

    Args:
        options: a seed, generators, or none of these: fresh entropy.
        device: of the noise.
    Raises:
        InputError: a seed together with generators, one generator for both, or one on another device.
    """
    given, places = (options.batch_generator, options.noise_generator), (_CPU, device)
    refuse_predictable(options.seed, *given)
    for name, generator, place in zip(("batch_generator", "noise_generator"), given, places, strict=True):
        if generator is not None and (not isinstance(generator, torch.Generator) or generator.device.type != place.type):
            raise InputError(f"{name}: got {generator!r}; it needs a torch.Generator on {place.type}.")
    if options.seed is not None:
        return seeded_generators(options.seed, places)
    pairs = zip(given, places, strict=True)
    return tuple(fresh_generator(place) if not isinstance(generator, torch.Generator) else generator for generator, place in pairs)


def starting_point(initial: Any, shape: tuple[int, int], device: torch.device) -> torch.Tensor:
    """$x_0$ in float64: zeros, or what is given.

    Args:
        initial: as of `Linear`.
        shape: that it needs.
        device: of the result.
    Raises:
        InputError: another shape, or an entry that is not finite.
    """
    if initial is None:
        by_outputs = torch.zeros(shape[::-1], dtype=torch.float64, device=device)  # as gradients are: a faster product with rows
        return by_outputs.T
    start = numbers("initial", initial)
    if start.shape != shape:
        raise InputError(f"initial: got shape {start.shape}; it needs {shape}: features (and a last row for an intercept) by outputs.")
    refuse_not_finite("initial", start)
    return torch.tensor(start, dtype=torch.float64, device=device)
