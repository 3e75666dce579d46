"""A context without chance: dropout is off, and what else is drawn is the same for every record."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_ATTENTION = {functional.scaled_dot_product_attention: 4, functional.multi_head_attention_forward: 10}
_RECURRENT = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
_DROPOUT = (
    *(functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d),
    *(functional.alpha_dropout, functional.feature_alpha_dropout),
    *(torch.dropout, torch.dropout_, torch.feature_dropout, torch.feature_dropout_, torch.alpha_dropout, torch.alpha_dropout_),
    *(torch.feature_alpha_dropout, torch.feature_alpha_dropout_),
)
_UNIFORM = (torch.rand, torch.rand_like, Tensor.uniform_)
_NORMAL = (torch.randn, torch.randn_like, Tensor.normal_)
_CHANCE = (torch.bernoulli, Tensor.bernoulli, Tensor.bernoulli_)
_SEED = 20261


class Quiet(TorchFunctionMode):
    """Within: dropout, also inside attention and recurrent layers, hands on what it is given, and no module leaves training mode.

    The n-th uniform, normal or Bernoulli draw is one that depends on n, on the shape of a row and on what its generator was seeded with
    alone, so that a record alone is given what it is given in company, unless the model seeds by what it holds. Other draws are left
    alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self._draws = 0
        self._seeds = set[int]()

    def begin(self) -> None:
        """A pass begins: its first draw is again the first."""
        self._draws = 0
        self._seeds = set()

    def seeds(self) -> frozenset[int]:
        """What the generators were seeded with that the pass drew from, and PyTorch's own; asked right after it."""
        return frozenset((*self._seeds, torch.default_generator.initial_seed()))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry out one operation."""
        kwargs = kwargs or {}
        if "generator" in kwargs and isinstance(own := kwargs["generator"], torch.Generator):
            self._seeds.add(own.initial_seed())
        if func in _DROPOUT:
            return args[0] if args else kwargs["input"]
        if (place := _ATTENTION.get(func)) is not None:
            args, kwargs = ((*args[:place], 0.0, *args[place + 1 :]), kwargs) if len(args) > place else (args, {**kwargs, "dropout_p": 0.0})
        elif func in _RECURRENT:  # the only real number among their arguments
            args = tuple(0.0 if isinstance(entry, float) else entry for entry in args)
        if func in _UNIFORM or func in _NORMAL or func in _CHANCE:
            return self._drawn(func, args, kwargs)
        return func(*args, **kwargs)

    def _drawn(self, func: Any, args: Any, kwargs: Any) -> Any:
        with torch.random.fork_rng([]):
            made = func(*args, **kwargs)
        if not isinstance(made, Tensor) or not made.is_floating_point() or not made.numel():
            return made
        self._draws += 1
        given = kwargs.get("generator")
        seeded = (given if isinstance(given, torch.Generator) else torch.default_generator).initial_seed()
        self._seeds.add(seeded)
        own = torch.Generator().manual_seed((seeded + _SEED + self._draws) % 2**63)
        draw = torch.randn if func in _NORMAL else torch.rand
        row = draw(made.shape[1:], generator=own, dtype=torch.float64).expand(made.shape).to(made.device)
        with torch.no_grad():
            if func in _CHANCE:
                drawn_of = kwargs.get("p", 0.5) if func is Tensor.bernoulli_ else kwargs.get("p", args[0])
                chances = args[1] if len(args) > 1 else drawn_of
                return made.copy_(row < chances)
            low, high = (*args[1:], *(0.0, 1.0)[len(args) - 1 :])[:2] if func in (Tensor.uniform_, Tensor.normal_) else (0.0, 1.0)
            low, high = kwargs.get("from", kwargs.get("mean", low)), kwargs.get("to", kwargs.get("std", high))
            return made.copy_(row * high + low if func in _NORMAL else row * (high - low) + low)
