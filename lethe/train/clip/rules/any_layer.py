"""Any layer: the parameters that no rule knows, by `torch.func.vmap` of the layer's own backward pass."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.utils._pytree import tree_flatten, tree_unflatten

from lethe.train.clip.parts.part import MaterialisedGradients
from lethe.train.clip.rules.rule import Call, Parts


def any_layer(call: Call) -> Parts:
    """The layer is computed again for each row: where it is random, the check finds that its gradients are others."""
    rows = len(next(gradient for gradient in call.gradients if gradient is not None))
    parameters = dict(call.module.named_parameters(remove_duplicate=False))
    own = {name: parameters[name].detach() for name in call.names}
    leaves, spec = tree_flatten((call.args, dict(call.kwargs)))
    dims = [0 if isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == rows else None for leaf in leaves]
    if 0 not in dims:
        raise NotImplementedError(f"{type(call.module).__name__} is given nothing of a record")

    def product(own: dict[str, Tensor], gradients: list[Tensor | None], *leaves: Any) -> Tensor:
        args, kwargs = tree_unflatten([leaf[None] if dim == 0 else leaf for leaf, dim in zip(leaves, dims, strict=True)], spec)
        outputs = tensors_of(functional_call(call.module, own, args, kwargs, tie_weights=False))
        products = [(out[0] * gradient).sum() for out, gradient in zip(outputs, gradients, strict=True) if gradient is not None]
        return torch.stack(products).sum()

    wanted = [None if gradient is None else 0 for gradient in call.gradients]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of operations that vmap takes one record at a time
        formed = vmap(grad(product), (None, wanted, *dims), randomness="different")(own, list(call.gradients), *leaves)
    for name, gradients in formed.items():
        yield name, MaterialisedGradients(gradients)


def tensors_of(output: Any) -> list[Tensor]:
    """The tensors with gradients of what a layer gave, in order."""
    return [leaf for leaf in tree_flatten(output)[0] if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())]
