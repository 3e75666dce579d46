"""Frozen layers whose weights are whole numbers, as quantisation makes them: stand-ins for those of torchao, bitsandbytes and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers from -127 to 127, and a scale for each row."""
    scales = weight.detach().abs().amax(1, keepdim=True) / 127
    return (weight.detach() / scales).round().to(torch.int8), scales


class BufferedLinear(nn.Linear):
    """int8 numbers and scales in buffers; no parameter at all."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=False)
        del self.weight
        for name, tensor in zip(("weight", "scales"), rounded(layer.weight), strict=True):
            self.register_buffer(name, tensor)

    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(input, self.weight.to(input.dtype) * self.scales.to(input.dtype))


class FrozenLinear(nn.Linear):
    """int8 numbers in a frozen parameter, as bitsandbytes has them."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=False)
        numbers, scales = rounded(layer.weight)
        self.weight = nn.Parameter(numbers, requires_grad=False)
        self.register_buffer("scales", scales)

    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(input, self.weight.to(input.dtype) * self.scales.to(input.dtype))


class _Product(torch.autograd.Function):
    """Both factors rounded, each row of the first with a scale of its own; above a threshold, a column is left as it is for all rows."""

    @staticmethod
    def forward(context: Any, given: Tensor, numbers: Tensor, scales: Tensor, threshold: float) -> Tensor:  # pyright: ignore
        context.save_for_backward(numbers, scales)
        weight = numbers.to(given.dtype) * scales.to(given.dtype)
        rows = given.reshape(-1, given.shape[-1])
        large = rows.abs() >= threshold if threshold else torch.zeros_like(rows, dtype=torch.bool)
        columns = large.any(0)
        sizes = rows.masked_fill(large, 0).abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        coarse = (rows / sizes).round().masked_fill(columns, 0) * sizes
        return functional.linear(coarse + rows * columns, weight).reshape(*given.shape[:-1], -1)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:  # pyright: ignore
        numbers, scales = context.saved_tensors
        return gradient @ (numbers.to(gradient.dtype) * scales.to(gradient.dtype)), None, None, None


class _State:
    def __init__(self, threshold: float) -> None:
        self.threshold, self.numbers, self.scales = threshold, None, None


class Linear8bitLt(nn.Linear):
    """Its class's name is that of bitsandbytes; like that one it moves its numbers at the first call, and rounds what it is given."""

    def __init__(self, layer: nn.Linear, threshold: float = 0.0) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=False)
        numbers, scales = rounded(layer.weight)
        self.weight: Any = nn.Parameter(numbers, requires_grad=False)
        self.weight.scales = scales
        self.state: Any = _State(threshold)

    def forward(self, input: Tensor) -> Tensor:
        if self.state.numbers is None:
            self.state.numbers, self.state.scales = self.weight.data, self.weight.scales
            self.weight.scales = None
        return _Product.apply(input, self.state.numbers, self.state.scales, self.state.threshold)


class Whole(torch.Tensor):
    """A tensor that says it holds floating-point numbers and wraps an int8 tensor and scales, as torchao's do; it knows few operations."""

    @staticmethod
    def __new__(cls, numbers: Tensor, scales: Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=scales.dtype, device=numbers.device)

    def __init__(self, numbers: Tensor, scales: Tensor) -> None:
        self.numbers, self.scales = numbers, scales

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["numbers", "scales"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Tensor], context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["numbers"], inner["scales"])

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is functional.linear:
            given, weight = args[:2]
            return functional.linear(given, (weight.numbers * weight.scales).to(given.dtype), *args[2:])
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.detach.default:
            return cls(args[0].numbers, args[0].scales)
        if function is torch.ops.aten.clone.default:
            return cls(args[0].numbers.clone(), args[0].scales.clone())
        raise NotImplementedError(f"{function} of a Whole")


def wrapped(layer: nn.Linear) -> nn.Linear:
    """A plain layer with such a weight."""
    layer.weight = nn.Parameter(Whole(*rounded(layer.weight)), requires_grad=False)
    return layer


KINDS: dict[str, Callable[[nn.Linear], nn.Module]] = {
    "buffer": BufferedLinear,
    "frozen parameter": FrozenLinear,
    "rows rounded": Linear8bitLt,
    "wrapper": wrapped,
}


def quantise(model: nn.Module, kind: Callable[[nn.Linear], nn.Module]) -> None:
    """Put a quantised layer in the place of each linear layer without a bias."""
    for holder in list(model.modules()):
        for name, child in list(holder.named_children()):
            if type(child) is nn.Linear and getattr(child, "bias", None) is None:
                setattr(holder, name, kind(child))
