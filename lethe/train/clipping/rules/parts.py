"""Parts: per-record gradients of one parameter, in forms that are cheap to measure and to sum."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lethe.train.clipping.rules.rule import LayerGradients, Use
from lethe.train.clipping.unfollowed import UnfollowedError
from lethe.train.core.tensors import on_cpu
from lethe.train.core.together.weighing import weighed

# Squares are summed in their own arithmetic over this many numbers at most: by eight partial sums or more, of 32 squares each.
_BLOCK = 256

# Between these no square of a float32 number that matters to the norm has vanished, and none has overflown.
_SMALL, _LARGE = 1e-12, 1e17

# In a bound: numbers whose squares are added in one sum, if they can be chosen, and at most; what rounding takes of a length, with room;
# and what may be left of one whose squares have vanished.
_TOGETHER, _WIDEST, _LONGER, _VANISHED = 2**14, 2**17, 1.01, 1e-12

# Numbers that are copied at a time where sums are taken anew: 2^18 float32 are 1 MiB, and in float64 2 MiB. And on a GPU, where all sums
# are taken in float64: 128 MiB.
_ANEW, _ANEW_ON_GPU = 2**18, 2**24


def taken(tensor: Tensor, rows: Tensor) -> Tensor:
    """`tensor[rows]`; nothing is copied where rows that lie together are asked for on a CPU."""
    if not on_cpu(rows) or not len(rows):
        return tensor[rows]
    first = int(rows[0])
    together = len(rows) == 1 or torch.equal(rows, torch.arange(first, first + len(rows)))
    return tensor.narrow(0, first, len(rows)) if together else tensor[rows]


def squares_of(formed: Tensor) -> Tensor:
    """Squared norms of the records' tensors, shape (B,), float64: right to 22 eps of the tensors' arithmetic at any size.

    Short blocks are summed as they are, blocks in float64. A sum near which squares vanish or overflow is taken anew in float64. On a GPU
    all are taken in float64, without a question.
    """
    return lengths_of(formed).square()


def lengths_of(formed: Tensor) -> Tensor:
    """The norms whose squares are `squares_of`."""
    flat = formed.flatten(1)
    if not flat.shape[1]:
        return flat.new_zeros(len(flat), dtype=torch.float64)
    if flat.dtype == torch.float64:
        return torch.linalg.vector_norm(flat, dim=1)
    if not on_cpu(flat):
        if flat.numel() <= _ANEW_ON_GPU:
            return torch.linalg.vector_norm(flat, dim=1, dtype=torch.float64)
        columns = flat.split(max(1, _ANEW_ON_GPU // len(flat)), dim=1)
        return torch.stack([torch.linalg.vector_norm(piece, dim=1, dtype=torch.float64) for piece in columns]).norm(dim=0)
    # Across rows, a record's squares would be added one by one.
    flat = flat.contiguous()
    whole = flat.shape[1] - flat.shape[1] % _BLOCK
    if flat.shape[1] > _BLOCK:
        blocks = torch.linalg.vector_norm(flat[:, :whole].view(len(flat), -1, _BLOCK), dim=2)
        if whole < flat.shape[1]:
            blocks = torch.cat([blocks, torch.linalg.vector_norm(flat[:, whole:], dim=1, keepdim=True)], dim=1)
        lengths = torch.linalg.vector_norm(blocks, dim=1, dtype=torch.float64)
    else:
        lengths = torch.linalg.vector_norm(flat, dim=1).double()
    told = lengths.detach().numpy()
    if told.size and not (told.min() > _SMALL and told.max() < _LARGE):  # or one is no number
        extreme = ~((lengths > _SMALL) & (lengths < _LARGE))
        extreme &= torch.linalg.vector_norm(flat, torch.inf, dim=1) != 0  # nothing has vanished where nothing is
        for rows in extreme.nonzero()[:, 0].split(max(1, _ANEW // max(1, flat.shape[1]))):
            lengths[rows] = torch.linalg.vector_norm(flat[rows], dim=1, dtype=torch.float64)
    return lengths


def lengths_at_most(one: Tensor, other: Tensor) -> tuple[NDArray[np.float64], float] | None:
    r"""A bound of $\sum_t\|x_{it}\|\|g_{it}\|$, shape (B,), and one of all these lengths, on a CPU; None: it would not be quick.

    Positions are taken several at a time, by Cauchy and Schwarz: their lengths are sums of no more than 2^17 squares, which rounding in
    float32 makes shorter by no more than 0.4 %.

    Args:
        one, other: x and g, shapes (B, T, d) and (B, T, p).
    """
    records, positions = one.shape[:2]
    widest = max(1, one.shape[2], other.shape[2])
    if not records * positions or widest > _WIDEST or not (one.is_contiguous() and other.is_contiguous()):
        return None
    together = math.gcd(positions, 1 << max(0, (_TOGETHER // widest).bit_length() - 1))
    pieces = positions // together
    x, g = (torch.linalg.vector_norm(factor.view(records, pieces, -1), dim=2).numpy() for factor in (one.detach(), other.detach()))
    longest = _LONGER * max(float(x.max()), float(g.max())) + _VANISHED
    # Where squares vanished, a length is too short by no more than _VANISHED.
    return _LONGER**2 * np.einsum("bs,bs->b", x, g, dtype=np.float64) + pieces * _VANISHED * 2 * longest, longest


def places_of(masks: Sequence[Tensor], parts: int) -> tuple[list[Tensor], list[Tensor]]:
    """Where the first mask is true and where the second, if there is one, part by part; a GPU is asked once for all."""
    device, told = masks[0].device, list(masks) if on_cpu(masks[0]) else list(torch.stack(tuple(masks)).cpu())
    none = torch.empty(0, dtype=torch.int64, device=device)
    found = [[none] * parts, [none] * parts]
    for places, mask in zip(found, told, strict=False):
        rows = mask.numpy().reshape(parts, mask.shape[-1])
        for place in np.flatnonzero(rows.any(1)):
            places[place] = torch.from_numpy(np.flatnonzero(rows[place])).to(device)
    return found[0], found[1]


def added(terms: Sequence[Tensor]) -> Tensor:
    """The sum of one tensor or more of one shape."""
    return terms[0] if len(terms) == 1 else torch.stack(tuple(terms)).sum(0)


class Part(ABC):
    """The gradients of the records in one parameter, in whatever form."""

    dtype: torch.dtype = torch.float32
    """Of the gradients."""
    whole: bool = True
    """False after `settle` where only norms, slack and the weighted sum may still be asked for."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """Shape (B,)."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """The weighted sum, of the parameter's shape, float64; `weights` has shape (B,).

        Two records are never added in less than float64, so that rounding cannot make one record count for more, see docs/precision.md.
        A record of weight 0 adds nothing, even if not finite.
        """

    @abstractmethod
    def per_record(self) -> Tensor:
        """Shape (B, *shape)."""

    def slack(self) -> Tensor | None:
        r"""How far a record's part of the weighted sum may lie from $w_i G_i$ in units of $w_i$, beyond some eps of its norm.

        Shape (B,), float64; None: nowhere.
        """
        return None

    def lengths(self) -> Tensor:
        r"""$L_i \ge \|G_i\|$, the lengths of the terms that $G_i$ is summed of, shape (B,), float64: rounding is some eps times $L_i$."""
        return self.squared_norms().double().clamp(min=0).sqrt()

    def formed(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """G_i of some records, summed in an arithmetic, shape (len(rows), *shape)."""
        return self.per_record()[rows].to(dtype)

    def add_formed(self, rows: Tensor, to: Tensor) -> None:
        """Add G_i of some records to a contiguous tensor, in its arithmetic, shape (len(rows), *shape)."""
        to.add_(self.formed(rows, to.dtype))

    def settle(self) -> None:
        """Measure now, and let go of what only other questions than norms, slack and the weighted sum need."""
        return


class Rows(Part):
    """Gradients held as they are: for parameters small enough, such as biases and scales.

    Args:
        gradients: shape (B, *shape).
    """

    def __init__(self, gradients: Tensor) -> None:
        self.gradients = gradients
        self.dtype = gradients.dtype

    def squared_norms(self) -> Tensor:
        """See Part."""
        return squares_of(self.gradients)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """See Part."""
        return weighed(weights, self.gradients)

    def per_record(self) -> Tensor:
        """See Part."""
        return self.gradients


class Stacked(Part):
    """A parameter that is several others stacked along its first dimension.

    Args:
        parts: in the order of the stack.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)
        self.dtype = self.parts[0].dtype

    def squared_norms(self) -> Tensor:
        """See Part."""
        return torch.stack([part.squared_norms() for part in self.parts]).sum(0)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """See Part."""
        return torch.cat([part.weighted_sum(weights) for part in self.parts])

    def slack(self) -> Tensor | None:
        """See Part."""
        known = [slack for part in self.parts if (slack := part.slack()) is not None]
        return torch.stack(known).square().sum(0).sqrt() if known else None

    def lengths(self) -> Tensor:
        """See Part."""
        return torch.stack([part.lengths() for part in self.parts]).square().sum(0).sqrt()

    def formed(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """See Part."""
        return torch.cat([part.formed(rows, dtype) for part in self.parts], dim=1)

    def per_record(self) -> Tensor:
        """See Part."""
        return torch.cat([part.per_record() for part in self.parts], dim=1)


class PartedGradients(LayerGradients):
    """A layer rule that gives the gradients of each parameter separately; `parts` holds one entry for each in `names`."""

    def __init__(self, module: nn.Module, uses: Sequence[Use], names: frozenset[str]) -> None:
        super().__init__(module, uses, names)
        parts = self.make_parts()
        if missing := sorted(names - parts.keys()):
            raise UnfollowedError(
                f"{type(module).__name__} has no gradient rule for {', '.join(missing)}; the rule knows {', '.join(sorted(parts))}.",
                source="the trained parameters of the layer",
                remedy="freeze what a subclass added (requires_grad_(False)), or register a rule of its own for that class.",
            )
        self.parts: dict[str, Part] = {name: parts[name] for name in sorted(names)}

    @abstractmethod
    def make_parts(self) -> Mapping[str, Part]:
        """The parts of all parameters that the layer has, or at least of those in `names`, over all uses."""

    def squared_norms(self) -> Tensor:
        """See LayerGradients."""
        return torch.stack([part.squared_norms() for part in self.parts.values()]).sum(0)

    def weighted_sums(self, weights: Tensor) -> dict[str, Tensor]:
        """See LayerGradients."""
        return {name: part.weighted_sum(weights) for name, part in self.parts.items()}

    def per_record(self, name: str) -> Tensor:
        """See LayerGradients."""
        return self.parts[name].per_record()
