"""A PyTorch module as a problem of `lethe.heavy_tailed`, whose solvers are in NumPy: gradients of records, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.heavy_tailed.problem import Moments, Problem
from lethe.heavy_tailed.sets import Array, ConvexSet, WholeSpace
from lethe.heavy_tailed.solution import Solution
from lethe.train.clip.isolated import by_vmap


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleProblem(Problem):
    """A problem over the trained parameters of a module, as one vector in the order of `parameters()`."""

    trained: tuple[nn.Parameter, ...]

    @property
    def start(self) -> Array:
        """The parameters as they are, shape (d,): where a solver may begin, and public if they are."""
        return _vector(list(self.trained))

    def load(self, solution: Solution) -> None:
        """Write a solution into the module, rounded to its precision."""
        with torch.no_grad():
            for parameter, value in zip(self.trained, _parts(solution.parameters, self.trained), strict=True):
                parameter.copy_(value)


def module_problem(
    model: nn.Module,
    loss: Callable[[Any, Any], Tensor],
    *,
    domain: ConvexSet | None = None,
    smoothness: float | None = None,
    strong_convexity: float | None = None,
    pl_constant: float | None = None,
    moments: Moments | None = None,
) -> ModuleProblem:
    r"""A module and its loss as a `Problem` for the solvers of `lethe.heavy_tailed`; records are arrays (inputs, targets).

    Each record's gradient is computed alone, as that of a batch of one under `torch.func.vmap`, so no layer can mix records; one that would
    change a buffer by them, such as a batch norm in training mode, is an error of PyTorch's. The module is not changed before `load`. A
    network has neither moments nor smoothness that anybody knows: state a clip norm in the oracle and a `step_size` to `multi_pass`.

    Args:
        model: all parameters that require gradients are trained; in the mode, and on the device, that it is in.
        loss: (outputs, targets) of a batch -> its loss, such as `torch.nn.functional.mse_loss`.
        domain, smoothness, strong_convexity, pl_constant, moments: as of `Problem`; domain None: the whole space.
    Returns:
        The problem, with `start`, the parameters as they are, and `load`, which writes a solution into the module.
    Raises:
        InputError: nothing is trained, or a constant is out of range.
    """
    trained = tuple(parameter for parameter in model.parameters() if parameter.requires_grad)
    if not trained:
        raise InputError("model: none of its parameters requires gradients.", remedy="set requires_grad of those that are to be trained.")

    def losses(batch: Any) -> Tensor:
        return loss(model(batch[0]), batch[1])

    def gradient(parameters: Array, records: Any) -> Array:
        batch = [_tensor(column, trained[0]) for column in records]
        rows, _ = by_vmap(model, losses, trained, batch, values=_parts(parameters, trained))
        return np.concatenate([rows[parameter].rows().flatten(1).double().cpu().numpy() for parameter in trained], axis=1)

    return ModuleProblem(
        gradient=gradient,
        dimension=sum(parameter.numel() for parameter in trained),
        domain=WholeSpace() if domain is None else domain,
        smoothness=smoothness,
        strong_convexity=strong_convexity,
        pl_constant=pl_constant,
        moments=moments,
        trained=trained,
    )


def _vector(tensors: list[Tensor]) -> Array:
    return torch.cat([tensor.detach().flatten().double().cpu() for tensor in tensors]).numpy()


def _parts(vector: Array, like: tuple[nn.Parameter, ...]) -> list[Tensor]:
    pieces = torch.from_numpy(np.array(vector)).split([parameter.numel() for parameter in like])
    return [piece.view_as(parameter).to(parameter) for piece, parameter in zip(pieces, like, strict=True)]


def _tensor(column: Any, like: Tensor) -> Tensor:
    tensor = torch.as_tensor(np.ascontiguousarray(column), device=like.device)
    return tensor.to(like.dtype) if tensor.is_floating_point() else tensor
