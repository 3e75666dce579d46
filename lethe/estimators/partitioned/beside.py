r"""What stands beside the records of a table in blocks: their weights, and whose they are.

Rows of one user may lie in several blocks. A user's loss is the mean over its rows, so that the sum over users is one over rows, each with
the share $1/n_u$ of its user: sums over blocks need $n_u$, and no two rows of a user in one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.calculus.domains import require_positive
from lethe.errors import InputError
from lethe.mechanisms.base import Array
from lethe.partitions.block import Block, refused
from lethe.partitions.table import ExaminedTable
from lethe.train.data.users import plain_ids

MOST_USERS = 2**22  # whose ids go to every worker in every pass: 64 MiB
_ROUNDED_DOWN = 1.0 - 1e-12  # shares of a user add up to 1 at most

Ids = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockUsers:
    """The users of all rows of a table; as private as the rows.

    Args:
        ids: sorted, each once.
        sizes: how many rows each has, shape (users,).
    """

    ids: Ids
    sizes: np.ndarray[Any, np.dtype[np.int64]]

    @property
    def users(self) -> int:
        """How many there are."""
        return len(self.ids)

    def shares(self, ids: Any) -> Array:
        """What a row counts in its user's loss, shape (m,).

        Args:
            ids: of rows, shape (m,).
        """
        return _ROUNDED_DOWN / self.sizes[np.searchsorted(self.ids, plain_ids(ids))]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Beside:
    """Weights and users of a table, as far as it has them; it is sent to workers.

    Args:
        max_weight: the public bound on weights.
        users: None: each row is a record by itself.
    """

    max_weight: float
    users: BlockUsers | None = None

    def weights(self, block: Block) -> Array | None:
        """Of the rows of a block, in [0, 1]; None: all 1."""
        weights = None if block.weights is None else block.weights.astype(np.float64) / self.max_weight
        if self.users is None:
            return weights
        assert block.users is not None  # without shares a user would count once a row
        shares = self.users.shares(block.users)
        return shares if weights is None else shares * weights


def looked_beside(table: ExaminedTable, max_weight: Any) -> Beside:
    """Look at weights and users: one pass, where there are any.

    Args:
        table: that was looked through.
        max_weight: the public bound.
    Raises:
        InputError: a weight that is out of its range, ids that do not tell users apart, fewer than two users, or too many.
    """
    bound = require_positive("max_weight", max_weight)
    read = table.source.read
    if not read.roles & {"weights", "users"}:
        return Beside(max_weight=bound)
    found = [answer.values for answer in table.answers(_counted_users, (bound,))]
    return Beside(
        max_weight=bound, users=_together([one for one in found if one is not None and len(one[0])]) if "users" in read.roles else None
    )


def _together(found: list[tuple[Ids, Any]]) -> BlockUsers:
    kinds = {"text" if ids.dtype.kind == "U" else "whole numbers" for ids, _ in found}
    if len(kinds) > 1:
        raise InputError("users: partitions hold whole numbers and texts; ids need to be one or the other.", source="the argument users")
    ids, places = np.unique(np.concatenate([ids for ids, _ in found]), return_inverse=True)
    if not 2 <= len(ids) <= MOST_USERS:
        raise InputError(
            f"users: there are {len(ids)}; a table in blocks takes 2 to {MOST_USERS}, whose ids go to every worker.",
            source="the argument users",
            remedy="fit by records, or fewer users" if len(ids) > 2 else "name the column whose entries tell users apart",
        )
    sizes = np.bincount(places.ravel(), weights=np.concatenate([counts for _, counts in found])).astype(np.int64)
    return BlockUsers(ids=ids, sizes=sizes)


def _counted_users(block: Block, bound: float) -> tuple[Ids, Any] | None:
    if block.weights is not None:
        _refuse_weights(block, block.weights, bound)
    if block.users is None or not len(block):
        return None
    try:
        return np.unique(plain_ids(block.users), return_counts=True)
    except InputError as error:
        raise refused(block.name, "users", error.what.removeprefix("users: ").rstrip("."), error.remedy or "") from None


def _refuse_weights(block: Block, weights: Any, bound: float) -> None:
    if weights.dtype.kind not in "biuf":
        raise refused(block.name, "sample_weight", f"it holds {weights.dtype}; it needs numbers", "write weights as numbers before")
    wide = weights.astype(np.float64)  # in which they are divided by the bound; NumPy would round the bound to the type of narrower ones
    wrong = ~((wide >= 0.0) & (wide <= bound))  # nan as well
    if wrong.any():
        row = int(np.argmax(wrong))
        raise refused(
            block.name,
            "sample_weight",
            f"row {row} holds {wide[row]:.10g}; it needs a number from 0 to max_weight = {bound:g}",
            "set max_weight to a bound known without looking at the data; noise grows with it",
        )
