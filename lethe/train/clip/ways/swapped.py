"""Other tensors in the place of a model's parameters, for a while.

`torch.func.functional_call` does not put parameters back that are reached by several names of one module, such as a bank of vectors that
all adapters share.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager

from torch import Tensor, nn


@contextmanager
def swapped(modules: Iterable[nn.Module], tensors: Mapping[nn.Parameter, Tensor]) -> Generator[None]:
    """Within: wherever one of these modules holds one of these parameters, it holds the tensor."""
    places = [
        (module._parameters, name, parameter)
        for module in modules
        for name, parameter in module._parameters.items()
        if parameter is not None and parameter in tensors
    ]
    try:
        for held, name, parameter in places:
            held[name] = tensors[parameter]  # pyright: ignore[reportArgumentType]
        yield
    finally:
        for held, name, parameter in places:
            held[name] = parameter
