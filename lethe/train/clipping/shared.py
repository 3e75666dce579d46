"""Parameters used by several layers: norms of their summed per-record gradients, cross terms included."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lethe.train.clipping.rules.outer_products import OuterProducts
from lethe.train.clipping.rules.parts import Part, squares_of
from lethe.train.clipping.rules.rounding import Cancelling
from lethe.train.clipping.rules.token_rows import TokenRows

# Numbers that may be held besides the activations, at most: 2^24 float32 are 64 MiB.
_HELD = 2**24


class Shared(Cancelling):
    r"""$G_i = \sum_\ell G_i^\ell$ over the layers that use the parameter.

    $$\|G_i\|^2 = \sum_\ell \|G_i^\ell\|^2 + 2 \sum_{\ell < m} \langle G_i^\ell, G_i^m \rangle$$

    Between tables of rows (embeddings) and outer products (linear layers) the cross terms cost one product for each pair of positions, so a
    tied embedding becomes a table a record only where there is memory to keep these. Other kinds are formed, a few records at a time.

    Args:
        parts: two or more, of one shape.
        numbers: how many numbers the parameter has.
    """

    def __init__(self, parts: Sequence[Part], numbers: int) -> None:
        self.parts = tuple(parts)
        self.numbers = numbers
        self.dtype = torch.float64 if all(part.dtype == torch.float64 for part in self.parts) else torch.float32
        self._products: OuterProducts | None = None
        for part in self.parts:
            if isinstance(part, OuterProducts):
                part.turned = False  # rows of a table are added to what it forms

    def _squares(self) -> Tensor:
        merged = _merged(self.parts)
        if len(merged) == 1 and isinstance(merged[0], OuterProducts):
            self._products = merged[0]
            squares = merged[0]._squares()
            self._kept = merged[0]._kept
            return squares
        if len(merged) == 1:
            return merged[0].squared_norms()
        if not all(isinstance(part, TokenRows | OuterProducts) for part in merged):
            return self._formed()
        table, products = sorted(merged, key=lambda part: isinstance(part, OuterProducts))
        assert isinstance(table, TokenRows)
        assert isinstance(products, OuterProducts)
        self._kept = products.formed_to_keep()
        if self._kept is not None:
            table.add_formed(torch.arange(table.batch, device=self._kept.device), self._kept)
            return squares_of(self._kept)
        return table.squared_norms() + products.squared_norms() + 2 * _cross(table, products)

    def _formed(self) -> Tensor:
        own = self.parts[0].squared_norms()
        if len(own) * self.numbers <= _HELD:
            self._kept = self.per_record()
            return squares_of(self._kept) if len(own) else own
        rows = torch.arange(len(own), device=own.device).split(self._at_once(_HELD // 2))  # in float64
        return torch.cat([squares_of(self.formed(chunk, torch.float64)) for chunk in rows])

    def lengths(self) -> Tensor:
        """See Part."""
        return torch.stack([part.lengths() for part in self.parts]).sum(0)

    def _between(self, lengths: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
        between, expected = super()._between(lengths, norms)
        own = [slack for part in self.parts if (slack := part.slack()) is not None]
        return torch.stack([between, *own]).sum(0), expected

    def _roundings(self) -> float | None:
        """See Cancelling."""
        return None if self._products is None else self._products._roundings()

    def _largest(self) -> Tensor | None:
        sizes = [size for part in self.parts if isinstance(part, Cancelling) and (size := part._largest()) is not None]
        return torch.stack(sizes).amax(0) if sizes else None

    def _raw(self, rows: Tensor, dtype: torch.dtype, *, brief: bool = False) -> Tensor:
        parts = list(self.parts)
        place = next((place for place, part in enumerate(parts) if isinstance(part, OuterProducts)), None)
        if place is None:
            return torch.stack([part.formed(rows, dtype) for part in parts]).sum(0)
        formed = parts.pop(place)._raw(rows, dtype, brief=brief)  # pyright: ignore[reportAttributeAccessIssue]
        for part in parts:
            part.add_formed(rows, formed)
        return formed

    def _sum(self, weights: Tensor) -> Tensor:
        first, *others = self.parts
        total = first.weighted_sum(weights)
        for part in others:
            total.add_(part.weighted_sum(weights))
        return total

    def per_record(self) -> Tensor:
        """See Part."""
        return torch.stack([part.per_record() for part in self.parts]).sum(0)


def _merged(parts: Sequence[Part]) -> list[Part]:
    """Parts of one kind joined: tables as one table, outer products as one sum over more positions."""
    tables = [part for part in parts if isinstance(part, TokenRows)]
    products = [part for part in parts if isinstance(part, OuterProducts)]
    others: list[Part] = [part for part in parts if not isinstance(part, TokenRows | OuterProducts)]
    if len(tables) == 1:
        others += tables  # itself, so that it is measured once
    elif tables:
        columns = zip(*((table.records, table.tokens, table.gradients) for table in tables), strict=True)
        records, tokens, gradients = (torch.cat(column) for column in columns)
        others.append(TokenRows(records, tokens, gradients, batch=tables[0].batch, table=tables[0].table))
    if len(products) == 1:
        others += products
    elif products:
        pairs = zip(*((part.inputs, part.gradients) for part in products), strict=True)
        inputs, gradients = (torch.cat(column, dim=1) for column in pairs)
        merged = OuterProducts(inputs, gradients)
        merged.turned = False
        others.append(merged)
    return others


def _cross(table: TokenRows, products: OuterProducts) -> Tensor:
    r"""$\langle E_i, L_i \rangle = \sum_{n:\, r_n = i} \sum_t \gamma_{it}[v_n]\, (e_n \cdot x_{it})$, shape (B,), float64."""
    positions, width = products.inputs.shape[1:]
    tokens, rows = _padded(table)
    size = max(1, _HELD // max(1, 2 * (positions * width + rows.shape[1] * (width + 2 * positions))))
    chunks = zip(*(entry.split(size) for entry in (products.inputs, products.gradients, tokens, rows)), strict=True)
    terms = [
        (torch.bmm(x.double(), e.double().mT) * g.gather(2, v.unsqueeze(1).expand(-1, positions, -1))).sum((1, 2)) for x, g, v, e in chunks
    ]
    return torch.cat(terms)


def _padded(table: TokenRows) -> tuple[Tensor, Tensor]:
    """The rows that each record looked up, and the gradients there, shapes (B, N) and (B, N, d); zeros of row 0 fill up the shorter."""
    counts = torch.bincount(table.records, minlength=table.batch)
    longest = int(counts.max()) if table.batch else 0
    order = table.records.argsort(stable=True)
    records = table.records[order]
    places = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[records]
    tokens = table.tokens.new_zeros(table.batch, longest).index_put_((records, places), table.tokens[order])
    shape = (table.batch, longest, table.gradients.shape[1])
    return tokens, table.gradients.new_zeros(shape).index_put_((records, places), table.gradients[order])
