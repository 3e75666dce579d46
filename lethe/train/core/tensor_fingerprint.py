"""Fingerprints of tensors by sums over their bits, where a copy would take too much memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lethe.train.core.tensors import WHOLE_NUMBERS, inner_tensors, local, on_cpu, same_bits
from lethe.train.core.together.small_tensors import groups_of

_COLUMNS = 1024
_PIECE = 2**16  # numbers that are summed at once on a CPU, whole rows

_SPARSE_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_SPARSE_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


def strided_parts(tensor: Tensor) -> list[Tensor] | None:
    """The strided tensors that a tensor consists of: itself, the indices and values of a sparse one, or what a wrapper wraps; None of
    other kinds."""
    if (inner := inner_tensors(tensor)) is not None:
        parts = [strided_parts(part) for part in inner]
        return None if None in parts else [part for some in parts if some is not None for part in some]
    tensor = tensor.detach()
    if tensor.is_meta or tensor.is_quantized:
        return None
    if tensor.layout == torch.strided:
        return [tensor]
    if tensor.layout == torch.sparse_coo:
        merged = tensor.coalesce()
        return [merged.indices(), merged.values()]
    if tensor.layout in _SPARSE_ROWS:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in _SPARSE_COLUMNS:
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return None


def same_numbers(now: Sequence[Tensor], before: Sequence[Tensor]) -> list[bool]:
    """Whether tensors of any layout have the same shape, type and numbers, NaN included, pair by pair; False where that cannot be told."""
    answers = [False] * len(now)
    pairs: list[tuple[int, Tensor, Tensor]] = []
    for place, (one, other) in enumerate(zip(now, before, strict=True)):
        if (one.layout, one.shape, one.dtype) != (other.layout, other.shape, other.dtype):
            continue
        parts, others = strided_parts(one), strided_parts(other)
        if parts is None or others is None:
            answers[place] = one is other or (not one.is_meta and one.is_quantized and torch.equal(one, other))
        elif len(parts) == len(others):
            answers[place] = True
            pairs += [(place, *pair) for pair in zip(parts, others, strict=True)]
    for (place, _, _), same in zip(pairs, same_bits([one for _, one, _ in pairs], [other for _, _, other in pairs]), strict=True):
        answers[place] = answers[place] and same
    return answers


def fingerprint(tensor: Tensor) -> tuple[Any, ...]:
    """A fingerprint of a tensor's shape, type and bits, see `fingerprints`."""
    return fingerprints([tensor])[0]


@torch.no_grad()
def fingerprints(tensors: Iterable[Tensor]) -> list[tuple[Any, ...]]:
    """Fingerprints of tensors' shapes, types and bits: sums over the rows and the columns of each one's bits as a table of whole numbers.

    One number that is another always shows. Nothing of a large tensor's size is kept. A GPU is waited for
    once for each type of small ones and once for the large ones, however many there are.
    """
    flat: list[Tensor] = []
    described = [_described(tensor, flat) for tensor in tensors]
    sums = _sums(flat)
    return [(*said, *sums[first:last]) for said, first, last in described]


def _described(tensor: Tensor, flat: list[Tensor]) -> tuple[tuple[Any, ...], int, int]:
    """What a tensor is besides its numbers; these are put among `flat`, and from where to where is told."""
    tensor, first = local(tensor), len(flat)
    said: list[Any] = [(tensor.shape, tensor.dtype, tensor.device)]
    if (inner := inner_tensors(tensor)) is not None:
        said += [_described(part, flat)[0] for part in inner]
    elif tensor.layout != torch.strided and (parts := strided_parts(tensor)) is not None:
        said += [_described(part, flat)[0] for part in parts]
    elif tensor.is_meta or tensor.layout != torch.strided or tensor.is_quantized:
        said += [id(tensor), 0 if tensor.is_inference() else tensor._version]
    else:
        flat.append(_bits(tensor))
    return tuple(said), first, len(flat)


def _bits(tensor: Tensor) -> Tensor:
    """Its bits as whole numbers, in one dimension; 8 bytes as two numbers, whose sums do not run over."""
    values = tensor.detach().contiguous()
    numbers = (torch.view_as_real(values) if values.is_complex() else values).reshape(-1)
    bits = numbers.view(WHOLE_NUMBERS[numbers.element_size()])
    return bits if len(bits) < _COLUMNS or bits.dtype != torch.int64 else bits.view(torch.int32)


def _sums(flat: list[Tensor]) -> list[bytes]:
    """Of whole numbers in one dimension: the sums of each."""
    found: dict[int, bytes] = {}
    there: dict[torch.device, list[int]] = defaultdict(list)
    for group in groups_of(flat):
        if len(group) > 1:
            parts = np.split(*_fetched([flat[place] for place in group]))
            found |= {place: _sums_here(part).tobytes() for place, part in zip(group, parts, strict=True)}
        elif on_cpu(flat[group[0]]):
            found[group[0]] = _sums_of_copies(flat[group[0]]).tobytes()
        else:
            there[flat[group[0]].device] += group
    for places in there.values():
        parts = np.split(*_fetched([_sums_there(flat[place]) for place in places]))
        found |= {place: part.tobytes() for place, part in zip(places, parts, strict=True)}
    return [found[place] for place in range(len(flat))]


def _fetched(parts: list[Tensor]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Copies of the parts on the CPU, one after the other, and where all but the first begin."""
    return torch.cat(parts).cpu().numpy(), np.cumsum([len(part) for part in parts[:-1]], dtype=np.int64)


def _sums_here(bits: NDArray[Any]) -> NDArray[Any]:
    """By NumPy, which takes an eighth of the time that PyTorch takes on a CPU."""
    even = len(bits) - len(bits) % _COLUMNS
    if not even:
        return bits.astype(np.int64)
    table = bits[:even].reshape(-1, _COLUMNS)
    return np.concatenate([table.sum(0, dtype=np.int64), table.sum(1, dtype=np.int64), bits[even:]], dtype=np.int64)


def _sums_of_copies(bits: Tensor) -> NDArray[Any]:
    """The same of a large tensor, piece by piece, of copies: memory that NumPy has seen cannot be let go of, as that of shards is."""
    even = len(bits) - len(bits) % _COLUMNS
    pieces = [_sums_here(piece.clone().numpy()) for piece in bits[:even].split(_PIECE)]
    columns = np.sum([piece[:_COLUMNS] for piece in pieces], axis=0, dtype=np.int64)
    return np.concatenate([columns, *(piece[_COLUMNS:] for piece in pieces), _sums_here(bits[even:].clone().numpy())])


def _sums_there(bits: Tensor) -> Tensor:
    even = len(bits) - len(bits) % _COLUMNS
    if not even:
        return bits.to(torch.int64)
    table = bits[:even].view(-1, _COLUMNS)
    return torch.cat([table.sum(0, dtype=torch.int64), table.sum(1, dtype=torch.int64), bits[even:].to(torch.int64)])
