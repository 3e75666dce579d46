"""Gives every record of a batch the same random numbers in dropout and other random layers, while the mode `SameDraws` is entered.

The check (`check.py`) needs it: a record's gradient in its batch can equal that of the record by itself only if both dropped the same
entries. Recurrent layers draw inside a kernel, so their dropout is set to 0; draws from the user's own generator are not controlled.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

_DROPOUTS = {
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
    torch.dropout,
}
_ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_LIKE = {torch.rand_like, torch.randn_like, torch.randint_like}
_SHAPED = {torch.rand, torch.randn}
_IN_PLACE = {Tensor.bernoulli_, Tensor.uniform_, Tensor.normal_, Tensor.exponential_}
_OF_TENSORS = _DROPOUTS | _LIKE | _IN_PLACE | {torch.bernoulli}


class SameDraws(TorchFunctionMode):
    """The n-th random call draws for one record, from seed n, and every record of the batch gets that draw. `side_by_side`: the rows of
    one record follow one another; else row k of all records does. `calls` counts the draws. Without `dropping` dropout drops nothing.
    """

    def __init__(self, records: int, *, side_by_side: bool = False, dropping: bool = True) -> None:
        super().__init__()
        self.records, self.side_by_side, self.dropping, self.calls = records, side_by_side, dropping, 0

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Call the function; where it draws random numbers, every record gets those of one record."""
        kwargs = dict(kwargs or {})
        if func is functional.scaled_dot_product_attention:  # it has no mask to share
            arguments = dict(zip(_ATTENTION, args, strict=False)) | kwargs
            self.calls += self.dropping and bool(arguments.get("dropout_p"))
            return func(**arguments | {"dropout_p": 0.0})
        if func is functional.multi_head_attention_forward:
            self.calls += self.dropping and bool(args[10])
            return func(*args[:10], 0.0, *args[11:], **kwargs)
        first: Any = args[0] if args else None
        if func in _DROPOUTS and not self.dropping:
            return first if args else kwargs["input"]
        if func is Tensor.backward and len(args) == 1 and all(value in (None, False) for value in kwargs.values()):
            # PyTorch leaves the mode for the whole backward pass, in which checkpoints are computed anew, with draws of their own.
            with self:
                engine: Any = torch.autograd.Variable._execution_engine
                return engine.run_backward((first,), (torch.ones_like(first),), False, False, (), True, True)
        if func in _SHAPED:
            shape = tuple(first) if isinstance(first, tuple | list) else args
            if shape and shape[0] and shape[0] % self.records == 0:
                return self._same(lambda: func(shape[0] // self.records, *shape[1:], **kwargs), shape[0])
        if func in _OF_TENSORS and isinstance(first, Tensor) and first.dim() and len(first) and len(first) % self.records == 0:
            first_record, rows = first.detach()[: len(first) // self.records], len(first)
            if func in _DROPOUTS:
                kwargs.pop("inplace", None)
                return first * self._same(lambda: func(torch.ones_like(first_record), *args[1:], **kwargs), rows)
            if func in _IN_PLACE:
                return first.copy_(self._same(lambda: func(first_record.clone(), *args[1:], **kwargs), rows))
            if func in _LIKE:
                return self._same(lambda: func(first_record, *args[1:], **kwargs), rows).clone()
            return (self._same(lambda: torch.rand_like(first_record), rows) < first).to(first.dtype)
        return func(*args, **kwargs)

    def _same(self, draw: Callable[[], Tensor], rows: int) -> Tensor:
        """`rows` rows: those drawn for one record, repeated for all records."""
        self.calls += 1
        devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
        with torch.random.fork_rng(devices=devices):
            # Of a GPU that is not used, PyTorch would note at every call where the seed was asked for.
            (torch.manual_seed if devices else torch.default_generator.manual_seed)(self.calls)
            drawn = draw()
        if len(drawn) == 1:
            return drawn.expand(rows, *drawn.shape[1:])
        return drawn.repeat(self.records, *[1] * (drawn.dim() - 1)) if self.side_by_side else drawn.repeat_interleave(self.records, 0)


@contextmanager
def of_no_record() -> Generator[None]:
    """Within: draws are for one tensor shared by all records (`Shared` uses it), and are not repeated for each record."""
    modes = [mode for mode in _get_current_function_mode_stack() if isinstance(mode, SameDraws)]
    before = [mode.records for mode in modes]
    try:
        for mode in modes:
            mode.records = 1
        yield
    finally:
        for mode, records in zip(modes, before, strict=True):
            mode.records = records
