r"""Rows of users: a user's loss is the mean over its rows, so its gradient is no longer than that of one row.

$$l_u(w) = \frac1{n_u} \sum_{i \in u} w_i\,l(\langle w, x_i\rangle, y_i), \qquad \|\nabla l_u\| \le G$$
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lethe.calculus.domains import require_count
from lethe.errors import InputError
from lethe.estimators.inputs.records import Index, Records
from lethe.mechanisms.base import Array
from lethe.train.data.users import owners_of


class UserRows(NamedTuple):
    """The rows of each user that are used: places in the table, user by user, and where each user's begin, shape (users + 1,)."""

    rows: Index
    starts: Index

    @property
    def users(self) -> int:
        """How many users there are."""
        return len(self.starts) - 1

    def of(self, users: slice | Index) -> Index:
        """Places in `rows` of some users' rows."""
        if isinstance(users, slice):
            return np.arange(int(self.starts[users.start]), int(self.starts[users.stop]))
        sizes = self.starts[users + 1] - self.starts[users]
        within = np.arange(sizes.sum()) - np.repeat(sizes.cumsum() - sizes, sizes)
        return np.repeat(self.starts[users], sizes) + within


def rows_of_users(ids: Any, *, count: int, most: object, generator: np.random.Generator | None) -> UserRows:
    """Which rows are whose.

    Args:
        ids: one a row, see `lethe.train.data.users.owners_of`.
        count: n, the rows of the table.
        most: the most rows of a user that are used, chosen at random; None: all.
        generator: of the choice; None: fresh entropy. Whatever is chosen, a user's gradient is bounded.
    Raises:
        InputError: ids that do not tell users apart, not one a row, fewer than two users, or a number that is none.
    """
    limit = None if most is None else require_count("rows_per_user", most)
    places = owners_of(ids).numpy()
    if len(places) != count:
        raise InputError(f"users: got {len(places)} ids for {count} rows.", remedy="give one for each row, in their order.")
    if (users := int(places.max()) + 1) < 2:
        raise InputError("users: all rows are of one user; it needs at least 2 users.", source="the argument users")
    # Sorted by user, each user's rows in random order, of which the first are kept, in the order of the table again.
    chance = np.random.default_rng() if generator is None else generator
    shuffled = np.lexsort((chance.random(count), places))
    sizes = np.bincount(places, minlength=users)
    rank = np.arange(count) - np.repeat(sizes.cumsum() - sizes, sizes)
    kept = np.sort(shuffled if limit is None else shuffled[rank < limit])
    kept = kept[np.argsort(places[kept], kind="stable")]
    left = sizes if limit is None else np.minimum(sizes, limit)
    return UserRows(kept.astype(np.intp, copy=False), np.concatenate([[0], left.cumsum()]).astype(np.intp))


def row_by_row(what: str, instead: str) -> InputError:
    """The error for a release from single rows, of which a user may have many."""
    return InputError(
        f"{what}: that is released from single rows, of which one user may have many.",
        source="the argument users",
        remedy=f"give {instead}, known without looking at the data.",
    )


class UserRecords(Records):
    """Records of users: batches, `order` and the length count users, and a user's gradient is the mean of its rows'.

    Args:
        users: whose rows are whose.
        table, targets, weights, norms: as of Records, of all rows of the table.
        order: a public order in which batches count the users, or None.
        known: `loss`, `feature_norm` and `intercept` of Records.
    """

    def __init__(
        self,
        users: UserRows,
        table: Any,
        targets: Array,
        *,
        weights: Array | None,
        order: Index | None,
        norms: Array,
        **known: Any,
    ) -> None:
        sizes = np.diff(users.starts)
        # Rounded down: the shares of a user add up to 1 at most.
        shares = np.repeat((1.0 - 1e-12) / sizes, sizes)
        shares = shares if weights is None else shares * weights[users.rows]
        super().__init__(table[users.rows], targets[users.rows], weights=shares, order=order, norms=norms[users.rows], **known)
        self._users = users

    def __len__(self) -> int:
        return self._users.users

    def _parts(self, batch: slice | Index, at_once: int) -> list[slice | Index]:
        """The rows of a batch of users in chunks, as places in the table."""
        chosen = batch if self.order is None else self.order[batch]
        return self._in_chunks(self._users.of(chosen), at_once)
