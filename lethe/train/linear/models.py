"""Linear models: preparing features (finite, projected to the public norm bound R) and targets; the description and the trained model. The
linear loop calls `prepare_features` and `prepare_targets`; a user describes the model by `Linear` and gets a `LinearPredictor`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from lethe.errors import InputError
from lethe.partitions.dask_tables import is_dask
from lethe.partitions.table import PartitionedTable
from lethe.run.losses.linear import LinearLoss, class_targets, real_targets
from lethe.train.core.iterates import onto_ball
from lethe.train.fitted import ModelDescription
from lethe.train.linear.gradients import losses_of

_CHUNK = 2**18  # entries that are held at 8 bytes at once


class Features(NamedTuple):
    """The design matrix, shape (n, d), or (n, d + 1) with the constant feature 1 last; and how many rows were longer than the bound."""

    rows: torch.Tensor
    projected: int


def prepare_features(values: Any, *, feature_norm: float, intercept: bool, dtype: torch.dtype, device: torch.device) -> Features:
    r"""Project every row on the ball of radius R and append the constant feature: $u \mapsto (u\min(1, R/\|u\|), 1)$.

    The projection acts on each record alone, so it changes nothing in what neighbouring data sets are. Values have shape (n, d); with an
    intercept $\|(u, 1)\|^2 \le R^2 + 1$.
    """
    table = _as_stored("features", values)
    if table.ndim != 2 or 0 in table.shape:
        raise InputError(
            f"features: got shape {table.shape}; it needs a table with at least one row and one column.",
            remedy="give shape (records, features).",
        )
    count, columns = table.shape
    held = torch.ones(count, columns + (1 if intercept else 0), dtype=dtype)
    projected, size = 0, max(1, _CHUNK // columns)
    for first in range(0, count, size):
        part = table[first : first + size]
        part = part.double() if isinstance(part, torch.Tensor) else torch.from_numpy(part.astype(np.float64))
        _refuse_not_finite("features", part.numpy(), first)
        rows, outside = onto_ball(part, feature_norm, dtype=dtype)
        held[first : first + len(rows), :columns] = rows
        projected += int(outside.sum())
    return Features(held.to(device=device), projected)


def prepare_targets(values: Any, *, classes: int | None, records: int, device: torch.device) -> torch.Tensor:
    """The targets as a column of shape (n, 1): class numbers as int64, or real numbers as float64.

    Values have shape (n,) or (n, 1), for n records; classes are numbered from 0, and none are real numbers.
    """
    array = numbers("targets", values)
    row = array[:, 0] if array.shape == (records, 1) else array
    checked_targets = (
        real_targets(row, count=records) if classes is None else class_targets(row, count=records, classes=classes).astype(np.int64)
    )
    return torch.from_numpy(checked_targets).unsqueeze(1).to(device)


def numbers(name: str, values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """`values` as float64, of any shape; InputError for text, objects, complex numbers, rows of unequal length, NaN and infinity."""
    table = _as_stored(name, values)
    array = table.double().numpy() if isinstance(table, torch.Tensor) else table.astype(np.float64)
    _refuse_not_finite(name, array)
    return array


def _as_stored(name: str, values: Any) -> torch.Tensor | np.ndarray[Any, Any]:
    """Real numbers of any shape in the type they came in, not copied where they are an array or a tensor; InputError as `numbers`."""
    if is_dask(values) or isinstance(values, PartitionedTable):
        raise InputError(
            f"{name}: got {type(values).__name__}, a table in blocks; this needs one in memory.",
            source=f"the argument {name}",
            remedy="predict block by block, such as by frame.map_partitions(model.predict); lethe.train.fit of a Linear trains on it",
        )
    if isinstance(values, torch.Tensor):
        if not values.is_complex():
            return values.detach().cpu()
        values = values.detach().cpu().numpy()
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}: cannot be read as an array: {error}.", remedy="give rows of equal length, numbers only.") from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name}: got type {array.dtype}; it needs real numbers.", remedy="encode text and categories as numbers first.")
    return array


def _refuse_not_finite(name: str, array: np.ndarray[Any, np.dtype[np.float64]], first: int = 0) -> None:
    """Name the first NaN or infinity by its index, where the rows of an array count from `first`."""
    finite = np.isfinite(array)
    if not finite.all():
        index_of_first = tuple(int(index) for index in np.argwhere(~finite)[0])
        location = ", ".join(map(str, (first + index_of_first[0], *index_of_first[1:])))
        raise InputError(
            f"{name}[{location}]: got {array[index_of_first]}; it needs a finite number (row {first + index_of_first[0]}, counted from 0).",
            remedy="drop or fill in missing values by a rule that does not look at other records.",
        )


_CPU = torch.device("cpu")
_DTYPES = {"float64": torch.float64, "float32": torch.float32}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearPredictor:
    """A linear model of features that are projected as in training.

    Args:
        weights: shape (d, k): k classes for losses of many classes, else k = 1.
        intercept: shape (k,); zeros if the model has none.
        loss: that it was trained by, with the number of its classes.
    """

    weights: npt.NDArray[np.float64]
    intercept: npt.NDArray[np.float64]
    loss: LinearLoss

    @classmethod
    def of(cls, parameters: torch.Tensor, loss: LinearLoss) -> LinearPredictor:
        """The model of what the loop returns: shape (d, k), or (d + 1, k) with the intercept's row last."""
        rows = parameters.to(device="cpu", dtype=torch.float64, copy=True).numpy()
        weights, intercept = (rows[:-1], rows[-1]) if loss.intercept else (rows, np.zeros(rows.shape[1]))
        return cls(weights=weights, intercept=intercept, loss=loss)

    @property
    def classes(self) -> int | None:
        """Their number, None where targets are numbers."""
        return self.loss.target_classes

    def predict(self, features: Any) -> npt.NDArray[Any]:
        """The class number, or the value, for each row of `features`, shape (n, d), projected as in training; InputError for others."""
        return self.loss.decide(self._scores(features).numpy())

    def accuracy(self, features: Any, targets: Any) -> float:
        """The share of rows whose class is predicted, in [0, 1]; InputError for a model without classes."""
        if self.classes is None:
            raise InputError("accuracy: least squares predicts numbers, not classes.", remedy="use mean_loss.")
        predicted = self.predict(features)
        return float((predicted == self._targets(targets, len(predicted)).numpy()[:, 0]).mean())

    def mean_loss(self, features: Any, targets: Any) -> float:
        """The mean of the records' losses, without the regulariser."""
        scores = self._scores(features)
        return float(losses_of(self.loss, scores, self._targets(targets, len(scores))).mean())

    @property
    def score_name(self) -> str:
        """What `score` measures: "accuracy" of a classifier (larger is better), else "mean truncated loss" (smaller is better)."""
        return "mean truncated loss" if self.classes is None else "accuracy"

    def score(self, features: Any, targets: Any) -> float:
        """`accuracy` for models with classes, `mean_loss` for least squares; `score_name` says which."""
        return self.mean_loss(features, targets) if self.classes is None else self.accuracy(features, targets)

    def _scores(self, features: Any) -> torch.Tensor:
        rows = prepare_features(features, feature_norm=self.loss.feature_norm, intercept=False, dtype=torch.float64, device=_CPU).rows
        if rows.shape[1] != len(self.weights):
            raise InputError(f"features: got {rows.shape[1]} columns; the model was trained on {len(self.weights)}.")
        return rows @ torch.tensor(self.weights) + torch.tensor(self.intercept)

    def _targets(self, targets: Any, records: int) -> torch.Tensor:
        return prepare_targets(targets, classes=self.classes, records=records, device=_CPU)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Linear(ModelDescription[LinearPredictor]):
    """A linear model of features, whose loss is the run's: any `lethe.losses.LinearLoss`.

    Args:
        classes: the public number of classes, never read off the data; needed for softmax regression, cut or not, unless the loss says it.
        initial: $x_0$, shape (d, k), or (d + 1, k) with the intercept's row last; must not depend on the data. None: zeros.
        dtype: "float64" or "float32", of the stored features and of the released model; the arithmetic is in float64.
        device: where the arithmetic is done, such as "cpu" or "cuda".

    Examples:
        >>> import torch
        >>> from lethe.train import Linear, fit
        >>> run = lethe.Run(
        ...     records=200, batches=lethe.batches.Cyclic(20), passes=5, step_size=0.5, noise_multiplier=5.0,
        ...     loss=lethe.losses.Logistic(feature_norm=1.0), release='last')
        >>> data = torch.rand(200, 3) / 2, torch.randint(2, (200,))
        >>> fitted = fit(Linear(), None, data, run)
        >>> lethe.certify(fitted, delta=1e-4).theorem
        'optimal-shift'
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
            device = torch.device(self.device)
            torch.zeros(1, device=device).item()  # a device that holds no numbers, such as meta, is refused here
        except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
            raise InputError(
                f"device: got {self.device!r}; it cannot be used: {str(error).splitlines()[0]}", remedy='use "cpu".'
            ) from error
        return chosen, device
