r"""Rows of a batch put together before the clip: one gradient a unit, such as a user, the mean over the unit's rows.

$$G_u = \sum_{r \in u} \frac{1}{n_u} \nabla \ell_r, \qquad \sum_u w_u G_u \quad\text{with}\quad \|w_u G_u\| \le C$$

Sums are linear: a unit's weight is the weight of each of its rows. Only norms need the rows of a unit added up first.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clipping.rules.outer_products import OuterProducts
from lethe.train.clipping.rules.parts import Part
from lethe.train.clipping.rules.token_rows import TokenRows
from lethe.train.clipping.shared import Shared
from lethe.train.clipping.units.divided import Divided
from lethe.train.clipping.units.grouped import Grouped

# How many times as many rows as the smallest unit of a table the largest may have.
_PADDED = 2


class Units:
    """Which rows of a batch belong together.

    Args:
        places: the unit of each row, shape (rows,), int64, in 0..count-1.
        count: U, how many units there are.
    Raises:
        InputError: the places are none.
    """

    def __init__(self, places: Tensor, count: int) -> None:
        if not isinstance(places, Tensor) or places.dtype != torch.int64 or places.dim() != 1:
            got = f"{places.dtype} of shape {tuple(places.shape)}" if isinstance(places, Tensor) else type(places).__name__
            raise InputError(f"units: got {got}; it needs the unit of each row, a one-dimensional int64 tensor.")
        if len(places) and not (int(places.min()) >= 0 and int(places.max()) < count):
            raise InputError(f"units: rows of the units {int(places.min())} to {int(places.max())}; there are {count}, counted from 0.")
        self.places, self.count = places, count
        self.sizes = torch.bincount(places, minlength=count)
        self._tables: list[tuple[Tensor, Tensor]] | None = None

    def means(self, losses: Tensor, counted: Tensor | None) -> Tensor:
        r"""$\ell_r / n_u$, shape (rows,): their sum over a unit is the mean loss of its rows.

        Args:
            losses: shape (rows,).
            counted: None: a row that is no record would count among its unit's.
        Raises:
            InputError: other rows than these, or some that do not count.
        """
        if counted is not None:
            raise InputError("counted: given together with units.", remedy="leave out the rows that are no records.")
        if len(losses) != len(self.places):
            raise InputError(f"losses: got {len(losses)}; the units are of {len(self.places)} rows.", remedy="give one loss a row.")
        return losses / self.sizes[self.places].to(losses)

    def any(self, rows: Tensor) -> Tensor:
        """Whether a unit has a row of which it is true, shape (U,), bool."""
        return torch.zeros(self.count, dtype=torch.int64, device=rows.device).index_add_(0, self.places, rows.long()) > 0

    def rows(self) -> list[list[int]]:
        """The rows of each unit that has any."""
        found: list[list[int]] = [[] for _ in range(self.count)]
        for row, place in enumerate(self.places.tolist()):
            found[place].append(row)
        return [rows for rows in found if rows]

    def grouped(self, parts: dict[nn.Parameter, Part]) -> dict[nn.Parameter, Part]:
        """The gradients with one row a unit; those of rows are taken out of `parts`, so that nothing is held twice."""
        return {parameter: self._grouped(parts.pop(parameter), parameter.numel()) for parameter in list(parts)}

    def _grouped(self, part: Part, numbers: int) -> Part:
        """Of sums over positions the positions of a unit's rows are put side by side; of other kinds rows are formed and added."""
        if type(part) is TokenRows:
            where = self.places.to(part.records.device)
            return TokenRows(where[part.records], part.tokens, part.gradients, batch=self.count, table=part.table)
        if type(part) is OuterProducts:
            found = [
                (units, OuterProducts(_side_by_side(part.inputs, table), _side_by_side(part.gradients, table)))
                for units, table in self.tables()
            ]
            return found[0][1] if len(found) == 1 else Divided(found, self.count)
        if type(part) is Shared:
            return Shared([self._grouped(one, numbers) for one in part.parts], numbers)
        return Grouped(part, self.places, self.sizes, numbers)

    def tables(self) -> list[tuple[Tensor, Tensor]]:
        """Units of about one size, ascending, and the rows of each, shape (units, most), filled up with -1: at most half of it.

        All units are in one table where none has twice as many rows as another.
        """
        if self._tables is None:
            low, high = int(self.sizes.min()), int(self.sizes.max())
            order = self.places.argsort(stable=True)
            starts = self.sizes.cumsum(0) - self.sizes
            edges = [high] if high <= _PADDED * low else [high // _PADDED**power for power in range(high.bit_length())]
            self._tables = []
            for edge, below in zip(edges, [*edges[1:], 0], strict=True):
                units = ((self.sizes <= edge) & (self.sizes > below)).nonzero()[:, 0]
                if len(units):
                    within = torch.arange(edge, device=order.device)[None] + torch.zeros_like(units)[:, None]
                    places = (starts[units][:, None] + within).clamp(max=len(order) - 1)
                    self._tables.append((units, torch.where(within < self.sizes[units][:, None], order[places], -1)))
        return self._tables


def _side_by_side(tensor: Tensor, table: Tensor) -> Tensor:
    """Shape (U, most * T, d) from (rows, T, d), zeros where a unit has fewer rows than the largest."""
    empty = table < 0
    gathered = tensor[table.clamp(min=0)]
    if empty.any():  # not where all units have as many rows, such as views: a pass over everything
        gathered = gathered.masked_fill(empty[:, :, None, None], 0)
    return gathered.flatten(1, 2)
