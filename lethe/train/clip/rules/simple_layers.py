"""Per-record gradients of affine maps, embeddings and normalisations, and of layers without a rule (`any_layer`, by vmap); rules of the
registry. $x_t$ is the input and $g_t$ the gradient in the output at position t of a record; a `Call` has both for all records.
"""

import warnings
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.utils._pytree import tree_flatten, tree_unflatten

from lethe.train.clip.parts.outer_products import Memory, OuterProducts
from lethe.train.clip.parts.part import MaterialisedGradients, ParameterGradients, TokenRows
from lethe.train.clip.rules.rule import Call, Parts, Watch, as_computed, positions, wide


def linear(call: Call, *, transposed: bool = False) -> Parts:
    """$G = \\sum_t g_tx_t^\\top$ and $\\sum_t g_t$; or of a weight of shape (inputs, outputs)."""
    gradient = positions(call.gradient)
    parts = list[tuple[str, ParameterGradients]]()  # no generator: every step passes here for every layer
    if "weight" in call.names:
        layer_input = positions(call.given)
        factors = (gradient, layer_input) if transposed else (layer_input, gradient)
        parts.append(("weight", OuterProducts(*factors, call.memory)))
    if "bias" in call.names:
        parts.append(("bias", _summed(gradient)))
    return parts


def watched_linear(
    watch: Watch,
    layer_input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    names: Sequence[str],
    around: Sequence[int] = (0, 0),
    apart: bool = False,
) -> Tensor:
    """A step $Wx + b$ of a forward pass of our own.

    x, W and b have shapes (rows, ..., d), (p, d) and (p,). `around`: how many outputs of the parameters lie before and behind those of this
    step; `apart`: of the bias only, and the weight is a parameter by itself.
    """

    def rule(gradient: Tensor, inputs: tuple[Tensor, ...], memory: Memory) -> Parts:
        gradient, inner = positions(wide(gradient)), positions(as_computed(inputs[0], gradient))
        whole = functional.pad(gradient, around) if any(around) else gradient
        yield names[0], OuterProducts(inner, gradient if apart else whole, memory)
        if bias is not None:
            yield names[1], _summed(whole)

    return watch(functional.linear(layer_input, weight, bias), (layer_input,), rule)


def _summed(gradient: Tensor) -> MaterialisedGradients:
    return MaterialisedGradients(gradient.squeeze(1) if gradient.shape[1] == 1 else gradient.sum(1))


def embedding(call: Call) -> Parts:
    """The gradient of each row is the sum of those of its uses; that of the padding row is 0, as torch has it."""
    module, tokens = call.module, call.args[0] if call.args else call.kwargs["input"]
    tokens = tokens.flatten(1) if tokens.dim() > 1 else tokens[:, None]
    gradient = call.gradient.reshape(*tokens.shape, module.embedding_dim)
    if module.padding_idx is not None:
        gradient = gradient.masked_fill((tokens == module.padding_idx)[..., None], 0)
    yield "weight", TokenRows(tokens.long(), gradient, module.num_embeddings)


def embedding_bag(call: Call) -> Parts:
    """One bag a row: indices of shape (B, N), or in a line with offsets; sums, means and maxima."""
    module, names = call.module, ("input", "offsets", "per_sample_weights")
    arguments = dict(zip(names, call.args, strict=False)) | dict(call.kwargs)
    tokens, factors, gradient = arguments["input"], arguments.get("per_sample_weights"), call.gradient
    counted = torch.ones_like(tokens, dtype=torch.bool)
    if tokens.dim() == 1:
        token_indices, counted = _places(arguments["offsets"], len(tokens), len(gradient))
        tokens, factors = tokens[token_indices], None if factors is None else factors[token_indices]
    if module.padding_idx is not None:
        counted = counted & (tokens != module.padding_idx)
    shares = counted.to(gradient.dtype)
    if module.mode == "mean":
        shares = shares / shares.sum(1, keepdim=True).clamp(min=1)
    elif factors is not None:
        shares = shares * wide(factors)
    each = gradient[:, None] * shares[..., None]
    if module.mode == "max" and tokens.shape[1]:  # the first of the largest
        values = wide(module.weight.detach())[tokens].masked_fill(~counted[..., None], -torch.inf)
        first = torch.arange(tokens.shape[1], device=tokens.device)[:, None] == values.argmax(1, keepdim=True)
        each = each * first
    yield "weight", TokenRows(tokens.long(), each, module.num_embeddings)


def _places(offsets: Tensor, tokens: int, bags: int) -> tuple[Tensor, Tensor]:
    """The positions of each bag's indices, shape (B, most), and which of them are used."""
    starts = offsets[:bags]
    ends = torch.cat([offsets[1 : bags + 1], offsets.new_full((1,), tokens)])[:bags]
    lengths = ends - starts
    ahead = torch.arange(int(lengths.max()) if bags else 0, device=offsets.device)
    used = ahead < lengths[:, None]
    return (starts[:, None] + ahead).masked_fill(~used, 0), used


def over_features(call: Call) -> Parts:
    """nn.LayerNorm and nn.RMSNorm: scales lie on the last dimensions."""
    shape, gradient = call.module.normalized_shape, call.gradient
    normalise = functional.layer_norm if isinstance(call.module, nn.LayerNorm) else functional.rms_norm
    return _scales(call, normalise(call.given, shape, eps=call.module.eps), range(gradient.dim() - len(shape), gradient.dim()))


def group_norm(call: Call) -> Parts:
    """nn.GroupNorm: scales lie on dimension 1."""
    return _scales(call, functional.group_norm(call.given, call.module.num_groups, eps=call.module.eps), [1])


def instance_norm(call: Call) -> Parts:
    """nn.InstanceNorm1d, 2d and 3d, for records with a dimension of channels each."""
    layer_input = call.given
    if layer_input.dim() < 3 or len(layer_input) != len(call.gradient):
        raise NotImplementedError("an input without a dimension of records")
    if call.module.track_running_stats and not call.module.training:
        return batch_norm(call)
    return _scales(call, functional.instance_norm(layer_input, eps=call.module.eps), [1])


def batch_norm(call: Call) -> Parts:
    """nn.BatchNorm in eval mode, where it is an affine map of each channel."""
    module, layer_input = call.module, call.given
    shape = (1, -1, *[1] * (layer_input.dim() - 2))
    mean, scale = module.running_mean.view(shape), (module.running_var + module.eps).rsqrt().view(shape)
    return _scales(call, (layer_input - mean) * scale, [1])


def _scales(call: Call, normalised: Tensor, dims: Collection[int]) -> Parts:
    """Gradients of a scale and a shift that lie on some dimensions of the output."""
    gradient = call.gradient
    other_dims = [dim for dim in range(1, gradient.dim()) if dim not in dims]
    for name, product in (("weight", lambda: normalised * gradient), ("bias", lambda: gradient)):
        if name in call.names:
            yield name, MaterialisedGradients(product().sum(other_dims) if other_dims else product())


def any_layer(call: Call) -> Parts:
    """The layer is computed again for each row: where it is random, the check finds that its gradients are others."""
    rows = len(next(gradient for gradient in call.gradients if gradient is not None))
    parameters = dict(call.module.named_parameters(remove_duplicate=False))
    weights = {name: parameters[name].detach() for name in call.names}
    leaves, spec = tree_flatten((call.args, dict(call.kwargs)))
    dims = [0 if isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == rows else None for leaf in leaves]
    if 0 not in dims:
        raise NotImplementedError(f"{type(call.module).__name__} is given nothing of a record")

    def product(weights: dict[str, Tensor], gradients: list[Tensor | None], *leaves: Any) -> Tensor:
        args, kwargs = tree_unflatten([leaf[None] if dim == 0 else leaf for leaf, dim in zip(leaves, dims, strict=True)], spec)
        outputs = tensors_of(functional_call(call.module, weights, args, kwargs, tie_weights=False))
        products = [(out[0] * gradient).sum() for out, gradient in zip(outputs, gradients, strict=True) if gradient is not None]
        return torch.stack(products).sum()

    batch_dims = [None if gradient is None else 0 for gradient in call.gradients]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of operations that vmap takes one record at a time
        formed = vmap(grad(product), (None, batch_dims, *dims), randomness="different")(weights, list(call.gradients), *leaves)
    for name, gradients in formed.items():
        yield name, MaterialisedGradients(gradients)


def tensors_of(output: Any) -> list[Tensor]:
    """The tensors of a layer's output that have gradients, in order."""
    return [leaf for leaf in tree_flatten(output)[0] if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())]


def no_parameter(output: Tensor, parameters: Iterable[nn.Parameter]) -> Tensor:
    """A copy where a layer gives a parameter of its own, or a view of one, which no history may be written into."""
    with torch._C.DisableTorchFunction():  # a mode would take it for a use of the parameter
        memory = {parameter.untyped_storage().data_ptr() for parameter in parameters}
        return output.clone() if output.untyped_storage().data_ptr() in memory else output
