r"""Norms of per-record gradients and their weighted sums, with proved rounding errors.

Weighted sums are added in float64. Norms of float32 gradients are added in float32 within blocks of 256 numbers, and in float64 beyond.
The parts in `parts/` call it; rounding alone could else make a record's share longer than the clip norm. eps is the spacing of the
gradients' type at 1, C' the clip norm less the margin for rounding, v a record's gradient. For a weight used at T positions, $x_t$ (d
numbers) is the input and $g_t$ (p numbers) the gradient in the output at position t, $\Lambda = \sum_t\|x_t\|\|g_t\|$.

That no record is longer than C' is proved in docs/theory.md, section 15. This file is responsible for two facts of that proof. A norm in
float32 is right to 11 eps (squares of 256 numbers by eight partial sums or more, then float64), a product of two norms to 22 eps. And where
a gradient is never formed, its squared norm $\sum_{ts}(x_t\cdot x_s)(g_t\cdot g_s)$, computed in float64, is off by at most
$\gamma_n\Lambda^2$, $n = d + p + 2T$, $\gamma_n = nu/(1 - nu)$ with u the unit roundoff. The rest is elsewhere: the parts add this error to
the square, and measure once more what they form for the sum; `clip_weights` in sums.py takes $w = C'/(\|v\|\sqrt{1 + 64\,\mathrm{eps}})$.
"""

import torch
from torch import Tensor

# A block's squares are summed in their own type: by eight partial sums or more, of 32 squares each.
_BLOCK = 256

# Between these no square of a float32 number that matters to the norm has vanished, and none has overflown.
_SMALL, _LARGE = 1e-12, 1e17

# Numbers that are copied at a time where float64 is used: 1 MiB of float32; on a GPU 64 MiB.
_AT_ONCE, _AT_ONCE_ON_GPU = 2**18, 2**24

# Numbers that are copied to float64 at a time: 2^17 are 1 MiB, which stays in a core's cache.
_WIDENED, _WIDENED_ON_GPU = 2**17, 2**24

CHAIN = 2**10
"""How many products whose lengths may be far above that of their sum are added one after another: `sum_error.py` bounds the rounding."""


def squares_of(formed: Tensor) -> Tensor:
    """Squared norms of the records' tensors, shape (B,), float64."""
    return lengths_of(formed).square()


def lengths_of(formed: Tensor) -> Tensor:
    """The norms whose squares are `squares_of`."""
    flat = formed if formed.dim() == 2 else formed.flatten(1)
    if not flat.shape[1]:
        return flat.new_zeros(len(flat), dtype=torch.float64)
    if flat.dtype == torch.float64:
        return torch.linalg.vector_norm(flat, dim=1)
    if not flat.is_cpu:
        columns = flat.split(max(1, _AT_ONCE_ON_GPU // max(1, len(flat))), dim=1)
        norms = [torch.linalg.vector_norm(piece, dim=1, dtype=torch.float64) for piece in columns]
        return norms[0] if len(norms) == 1 else torch.stack(norms).norm(dim=0)
    if flat.shape[1] <= _BLOCK // 4:
        return torch.linalg.vector_norm(flat, dim=1, dtype=torch.float64)
    # Across rows, a record's squares would be added one by one.
    flat = flat.contiguous()
    whole = flat.shape[1] - flat.shape[1] % _BLOCK
    blocks = torch.linalg.vector_norm(flat[:, :whole].view(len(flat), -1, _BLOCK), dim=2)
    if whole < flat.shape[1]:
        blocks = torch.cat([blocks, torch.linalg.vector_norm(flat[:, whole:], dim=1, keepdim=True)], dim=1)
    lengths = torch.linalg.vector_norm(blocks, dim=1, dtype=torch.float64)
    values = lengths.numpy()
    if values.size and not (values.min() > _SMALL and values.max() < _LARGE):  # or one is no number
        extreme = ~((lengths > _SMALL) & (lengths < _LARGE))
        for rows in extreme.nonzero()[:, 0].split(max(1, _AT_ONCE // flat.shape[1])):
            lengths[rows] = torch.linalg.vector_norm(flat[rows], dim=1, dtype=torch.float64)
    return lengths


def weighed(weights: Tensor, formed: Tensor) -> Tensor:
    r"""$\sum_i w_i G_i$ of formed tensors, shape (B, *shape), in float64, to which products of float32 numbers are exact."""
    flat = formed if formed.dim() == 2 else formed.unsqueeze(-1).flatten(1)
    if flat.dtype == torch.float64:
        return (weights @ flat).view(formed.shape[1:])
    size = max(1, (_WIDENED if flat.is_cpu else _WIDENED_ON_GPU) // max(1, flat.shape[0]))
    if flat.shape[1] <= size:
        total = weights @ flat.double()
        return total if formed.dim() == 2 else total.view(formed.shape[1:])
    total = flat.new_empty(flat.shape[1], dtype=torch.float64)
    for columns, part in zip(flat.split(size, dim=1), total.split(size), strict=True):
        torch.mv(columns.double().mT, weights, out=part)
    return total.view(formed.shape[1:])


def products_added(weights: Tensor, gradients: Tensor, inputs: Tensor) -> Tensor:
    r"""$\sum_i w_i g_i^\top x_i$, products and sum in float64; no product goes through more than 2 `CHAIN` + 64 roundings.

    Weights, gradients and inputs have shapes (B,), float64, (B, T, p) and (B, T, d).
    """
    if inputs.shape[1] == 1:
        return (gradients[:, 0] * weights[:, None]).mT @ inputs[:, 0].double()
    return _added((gradients * weights[:, None, None]).flatten(0, 1), inputs.flatten(0, 1))


def _added(columns: Tensor, rows: Tensor) -> Tensor:
    """columns^T rows in float64, in chunks, so that no product goes through more roundings than stated."""
    if len(rows) > CHAIN * CHAIN:
        half = len(rows) // 2
        return _added(columns[:half], rows[:half]).add_(_added(columns[half:], rows[half:]))
    total = columns.new_zeros(columns.shape[1], rows.shape[1])
    for column_chunk, row_chunk in zip(columns.split(CHAIN), rows.split(CHAIN), strict=True):
        total.addmm_(column_chunk.mT, row_chunk.double())
    return total


def looked_up_added(weights: Tensor, tokens: Tensor, gradients: Tensor, table: int) -> Tensor:
    """The sum of the rows of a table, in float64; through no more than 2 `CHAIN` + 64 roundings for a million records.

    Weights, tokens and gradients have shapes (B,), float64, (B, S) and (B, S, d); of a record no token is twice with a gradient.
    """
    total = gradients.new_zeros(table, gradients.shape[2], dtype=torch.float64)
    for token_chunk, rows, factors in zip(tokens.split(CHAIN), gradients.split(CHAIN), weights.split(CHAIN), strict=True):
        piece = total if len(tokens) <= CHAIN else torch.zeros_like(total)
        piece.index_add_(0, token_chunk.flatten(), (rows * factors[:, None, None]).flatten(0, 1))
        if piece is not total:
            total += piece
    return total
