"""Per-record gradients of a PyTorch module as NumPy arrays, so that the solvers of `lethe.heavy_tailed` can train it; and the way back.
Users pass a `ModuleGradients` as `gradient` of a `Problem`, and `load` the solution into the module.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lethe.calculus.domains import require_vector
from lethe.errors import InputError
from lethe.train.clip.isolated import by_vmap
from lethe.train.clip.module_state import Attributes

Vector = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class ModuleGradients:
    r"""A function (parameters, records) -> gradients: the `gradient` of a `lethe.heavy_tailed.Problem` whose loss is a module's.

    Records are arrays (inputs, targets), parameters one vector in the order of `parameters()`. Each record's gradient is computed alone, as
    that of a batch of one under `torch.func.vmap`, so no layer can mix records; one that would change a buffer by them in place, such as a
    batch norm in training mode, is an error of PyTorch's. Attributes and buffers that a module or a loss writes as it computes are put
    back after each call, so that no record meets what another one left. The module is not changed before `load`. Of a network nobody
    knows moments or smoothness: state a clip norm in the oracle, and `step_size` to `multi_pass`.

    Args:
        model: all parameters that require gradients are trained; in the mode, and on the device, that it is in.
        loss: (outputs, targets) of a batch -> its loss, such as `torch.nn.functional.mse_loss`.
    Attributes: `dimension`, d, and `start`, the parameters as they are, shape (d,): where a solver may begin, and public if they are.
    Raises:
        InputError: the model is no module, the loss no function, nothing is trained, or records are no pair of arrays.
    """

    def __init__(self, model: nn.Module, loss: Callable[[Any, Any], Tensor]) -> None:
        if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"model: got {type(model).__name__}; it needs a torch.nn.Module.")
        if not callable(loss):
            raise InputError(f"loss: got {type(loss).__name__}; it needs a function (outputs, targets) -> loss.")
        self._model, self._loss = model, loss
        self._trained = tuple(parameter for parameter in model.parameters() if parameter.requires_grad)
        if not self._trained:
            raise InputError("model: none of its parameters requires gradients.", remedy="set requires_grad of those to be trained.")
        self.dimension = sum(parameter.numel() for parameter in self._trained)
        self._modules = nn.ModuleList(part for part in (model, loss) if isinstance(part, nn.Module))

    @property
    def start(self) -> Vector:
        """The trained parameters as one vector, shape (d,), float64."""
        return torch.cat([parameter.detach().flatten().double().cpu() for parameter in self._trained]).numpy()

    def load(self, parameters: Vector) -> None:
        """Write parameters, such as those of a solution, shape (d,), into the module, rounded to its precision."""
        with torch.no_grad():
            for parameter, value in zip(self._trained, self._parts(require_vector("parameters", parameters, low=-math.inf)), strict=True):
                parameter.copy_(value)

    def __call__(self, parameters: Vector, records: Any) -> Vector:
        """The gradients there of some records, shape (s, d)."""

        def losses(batch: Any) -> Tensor:
            return self._loss(self._model(batch[0]), batch[1])

        if not isinstance(records, tuple) or len(records) != 2:
            got = f"a tuple of {len(records)}" if isinstance(records, tuple) else type(records).__name__
            raise InputError(
                f"records: got {got}; the gradients of a module need the pair (inputs, targets).", source="the argument records"
            )
        like = self._trained[0]
        batch = [torch.as_tensor(np.ascontiguousarray(column), device=like.device) for column in records]
        batch = [column.to(like.dtype) if column.is_floating_point() else column for column in batch]
        with Attributes(self._modules).fresh():
            rows, _ = by_vmap(self._model, losses, self._trained, batch, values=self._parts(parameters))
        return np.concatenate([rows[parameter].rows().flatten(1).double().cpu().numpy() for parameter in self._trained], axis=1)

    def _parts(self, vector: Vector) -> list[Tensor]:
        pieces = torch.from_numpy(np.array(vector)).split([parameter.numel() for parameter in self._trained])
        return [piece.view_as(parameter).to(parameter) for piece, parameter in zip(pieces, self._trained, strict=True)]
