"""What a model carries besides its trained parameters, and that training must leave as it was."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lethe.errors import HypothesisError
from lethe.train.network.tensors import WHOLE_NUMBERS

_COLUMNS = 1024


class UntouchedState:
    """Buffers and frozen parameters of a model, watched: they are released with it, and no noise was added to them.

    A forward pass that keeps a running mean, a count of what it saw or a memory writes what it learned of private records into a buffer.

    Parameters are compared by a fingerprint of their values: a write through `.data` leaves no other trace.

    Args:
        model: as it is before training.
        trained: watch the trained parameters as well, as during one forward pass, which may set none of them by what it saw.
    """

    __slots__ = ("_buffers", "_model", "_parameters", "_trained")

    def __init__(self, model: nn.Module, *, trained: bool = False) -> None:
        self._model, self._trained = model, trained
        # By value: buffers are small, and a self-check that restores them counts as a change of version.
        self._buffers = {name: (buffer, buffer.detach().clone()) for name, buffer in model.named_buffers()}
        self._parameters = self._fingerprints()

    def refuse_changes_after(self, steps: int) -> None:
        """The same after 1, 2, 4, 8 and so on steps: early enough to save a long training, and rare enough to cost nothing.

        Raises:
            HypothesisError: see `refuse_changes`.
        """
        if steps & (steps - 1) == 0:
            self.refuse_changes()

    def refuse_changes(self) -> None:
        """Refuse a model whose buffers or frozen parameters are not what they were.

        Raises:
            HypothesisError: some are not.
        """
        now = dict(self._model.named_buffers())
        changed = [name for name, buffer in now.items() if name not in self._buffers or not _same(buffer, self._buffers[name][1])]
        changed += [name for name in self._buffers if name not in now]
        parameters = self._fingerprints()
        changed += [name for name, found in parameters.items() if name not in self._parameters or found != self._parameters[name]]
        if changed:
            raise HypothesisError(
                f"{', '.join(changed[:3])}{' and others' if len(changed) > 3 else ''} changed while records passed through the model; "
                "nothing of it was clipped or noised, so it may tell of them what no certificate covers.",
                source=f"the model's buffers and {'' if self._trained else 'frozen '}parameters",
                remedy="put the layer that writes them in eval mode, or train without it; where the first batch is to set a parameter, let "
                "public data set it before; the model as it is now must not be released.",
            )

    def _fingerprints(self) -> dict[str, tuple[Any, ...]]:
        named = self._model.named_parameters()
        return {name: _fingerprint(parameter) for name, parameter in named if self._trained or not parameter.requires_grad}


def _fingerprint(parameter: Tensor) -> tuple[Any, ...]:
    """Of a tensor's shape, type and bits: sums over the rows and the columns of its bits as a table of whole numbers.

    One number that is another always shows. Nothing of the tensor's size is kept.
    """
    described = (tuple(parameter.shape), parameter.dtype, parameter.device)
    if parameter.is_meta or parameter.layout != torch.strided or parameter.is_quantized:
        return (*described, id(parameter), 0 if parameter.is_inference() else parameter._version)
    values = parameter.detach().contiguous()
    flat = (torch.view_as_real(values) if values.is_complex() else values).reshape(-1)
    bits = flat.view(WHOLE_NUMBERS[flat.element_size()])
    even = len(bits) - len(bits) % _COLUMNS
    table = bits[:even].view(-1, _COLUMNS)
    sums = torch.cat([table.sum(0, dtype=torch.int64), table.sum(1, dtype=torch.int64), bits[even:].to(torch.int64)])
    return (*described, sums.cpu().numpy().tobytes())


def _same(now: Tensor, before: Tensor) -> bool:
    return now.shape == before.shape and now.dtype == before.dtype and now.device == before.device and torch.equal(now, before)
