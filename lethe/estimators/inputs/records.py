r"""Records: the private data as training reads it, batch by batch; never more than a chunk of it is copied.

`PrivateLinearModel` makes them in `fit`; mechanisms read rows of bounded norm from them. A user is one person with several rows $u$ of the
table; $n_u$ is their number, $w_i$ a row's weight, G the bound on gradients.

Of users a loss is the mean over the user's rows, so its gradient is no longer than that of one row:

$$l_u(w) = \frac1{n_u} \sum_{i \in u} w_i\,l(\langle w, x_i\rangle, y_i), \qquad \|\nabla l_u\| \le G$$
"""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np

from lethe.calculus.domains import require_count, require_positive
from lethe.errors import InputError
from lethe.estimators.inputs.facts import CONSTANT
from lethe.mechanisms.base import Array
from lethe.run.losses.linear import LinearLoss

_EPS = float(np.finfo(np.float64).eps)
_CHUNK = 2**15  # entries of a chunk: 256 KiB, so that a chunk is read from memory once and no product is worth a second thread
_ENVELOPE_CHUNK = 2**18  # a search for slopes takes half a millisecond however few the records are
_SMALLEST, _LARGEST = 1e-100, 1e100
_LARGEST_LENGTH = float(np.finfo(np.float64).max)
_MOST_DENSE = 2**26  # entries: half a GiB

Index = np.ndarray[Any, np.dtype[np.intp]]


def row_norms(table: Any) -> Array:
    """The Euclidean norm of every row, shape (n,); inf where a square overflows."""
    count = table.shape[0]
    norms = np.empty(count)
    for chunk in _chunks(count, _width(table)):
        part = table[chunk]
        with np.errstate(over="ignore", under="ignore"):
            if isinstance(part, np.ndarray):
                wide = part.astype(np.float64, copy=False)
                squares = np.einsum("ij,ij->i", wide, wide)
            else:
                # `power` adds up entries that are stored twice before it squares them.
                squares = np.asarray(part.astype(np.float64).power(2).sum(axis=1)).ravel()
        norms[chunk] = np.sqrt(squares)
    return norms


class Records:
    r"""Rows scaled to norm at most 1, $u = x\min(1/R, 1/\|x\|)$, rounded inward, the constant feature appended if wanted.

    Args:
        table: shape (n, d), float64 or float32, an array or a CSR table; finite.
        targets: what the loss takes, shape (n,).
        loss: l.
        feature_norm: R, from 1e-100 to 1e100.
        intercept: whether to append the constant, of size `facts.CONSTANT`.
        weights: of the records, in [0, 1], shape (n,), or None.
        order: a public order in which batches count the records, shape (n,), or None.
        norms: of the rows, if known.
    """

    def __init__(
        self,
        table: Any,
        targets: Array,
        *,
        loss: LinearLoss,
        feature_norm: float,
        intercept: bool,
        weights: Array | None = None,
        order: Index | None = None,
        norms: Array | None = None,
    ) -> None:
        radius = require_radius(feature_norm)
        self.table, self.targets, self.loss, self.intercept = table, targets, loss, intercept
        self.weights, self.order = weights, order
        self._entries = _width(table)
        limit = 1.0 - (table.shape[1] + 16) * _EPS
        lengths = row_norms(table) if norms is None else norms
        with np.errstate(over="ignore", divide="ignore"):
            self.factors = np.minimum(limit / radius, limit / lengths)
        # Of a row whose length overflowed nothing is left; 1 is no less than what is.
        self._lengths = np.where(np.isfinite(lengths), np.minimum(lengths, _LARGEST_LENGTH) * self.factors, 1.0)
        self._envelope: float | None = None

    def __len__(self) -> int:
        return int(self.table.shape[0])

    def with_loss(self, loss: LinearLoss) -> Records:
        """The same records, for another loss of the same targets."""
        twin = copy(self)
        twin.loss = loss
        return twin

    def with_envelope(self, bound: float | None) -> Records:
        """The same records, along the Lipschitz envelope of their loss: no gradient is longer than `bound`, rounding included."""
        twin = copy(self)
        twin._envelope = None if bound is None else bound * (1.0 - (self.columns + self.loss.outputs + 48) * _EPS)
        return twin

    @property
    def columns(self) -> int:
        """d."""
        return int(self.table.shape[1])

    def gradient_sum(self, parameters: Array, batch: slice | Index) -> Array:
        """The sum of the losses' gradients over a batch, shape (D, k); the batch counts in `order`."""
        total = np.zeros_like(parameters)
        at_once = _CHUNK if self._envelope is None else _ENVELOPE_CHUNK
        for rows in self._parts(batch, at_once):
            part = self.table[rows]
            if part.dtype != np.float64:
                part = part.astype(np.float64)
            factors = self.factors[rows, None]
            scores = np.asarray(part @ parameters[: self.columns]) * factors
            if self.intercept:
                scores += CONSTANT * parameters[-1]
            slopes = self._slopes(scores, rows)
            if self.weights is not None:
                slopes = slopes * self.weights[rows, None]
            total[: self.columns] += part.T @ (slopes * factors)
            if self.intercept:
                total[-1] += CONSTANT * slopes.sum(axis=0)
        return total

    def _slopes(self, scores: Array, rows: slice | Index) -> Array:
        """Of the loss, or of its envelope of bound C over the row's norm."""
        if self._envelope is None:
            return self.loss.slopes(scores, self.targets[rows])
        norms = np.hypot(self._lengths[rows], CONSTANT if self.intercept else 0.0)
        with np.errstate(divide="ignore"):
            bounds = self._envelope / norms
            slopes = self.loss.envelope_slopes(scores, self.targets[rows], bounds)
            # Rounding, and bounds between 1 and the loss's own, can leave a slope a little too long; a row of zeros has no gradient.
            steep = bounds / np.sqrt(np.einsum("nk,nk->n", slopes, slopes))
        return slopes * np.minimum(steep, 1.0)[:, None]

    def dense(self) -> Array:
        """All rows, scaled to norm at most 1, with the constant; for solvers that need the whole table."""
        rows = self.table if isinstance(self.table, np.ndarray) else self.table.toarray()
        scaled = np.empty((len(self), self.columns + (1 if self.intercept else 0)))
        np.multiply(rows, self.factors[:, None], out=scaled[:, : self.columns])
        scaled[:, self.columns :] = CONSTANT
        return scaled

    def arrays(self, loss: LinearLoss | None = None) -> tuple[Array, Array]:
        """What a mechanism takes as features and targets; of records in memory nothing depends on the loss that it trains on."""
        return self.dense(), self.targets

    def _parts(self, batch: slice | Index, at_once: int) -> list[slice | Index]:
        """A batch in chunks, as places in the table; views where that is possible."""
        whole = isinstance(batch, slice) and batch.stop - batch.start == len(self)
        if isinstance(batch, slice) and (whole or self.order is None):
            parts = _chunks(batch.stop - batch.start, self._entries, at_once)
            return [slice(batch.start + part.start, batch.start + part.stop) for part in parts]
        rows = batch if self.order is None else self.order[batch]
        assert not isinstance(rows, slice)
        return [rows[part] for part in _chunks(len(rows), self._entries, at_once)]


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


def rows_of_users(ids: Any, *, count: int, rows_per_user: object, generator: np.random.Generator | None) -> UserRows:
    """Which rows are whose, at most so many of a user, chosen at random; whatever is chosen, a user's gradient is bounded."""
    limit = None if rows_per_user is None else require_count("rows_per_user", rows_per_user)
    from lethe.train.data.users import owners_of  # loads torch, which takes seconds

    owners = owners_of(ids).numpy()
    if len(owners) != count:
        raise InputError(f"users: got {len(owners)} ids for {count} rows.", remedy="give one for each row, in their order.")
    if (users := int(owners.max()) + 1) < 2:
        raise InputError("users: all rows are of one user; it needs at least 2 users.", source="the argument users")
    # Sorted by user, each user's rows in random order, of which the first are kept, in the order of the table again.
    chance = np.random.default_rng() if generator is None else generator
    shuffled = np.lexsort((chance.random(count), owners))
    sizes = np.bincount(owners, minlength=users)
    rank = np.arange(count) - np.repeat(sizes.cumsum() - sizes, sizes)
    chosen = np.sort(shuffled if limit is None else shuffled[rank < limit])
    chosen = chosen[np.argsort(owners[chosen], kind="stable")]
    used_sizes = sizes if limit is None else np.minimum(sizes, limit)
    return UserRows(chosen.astype(np.intp, copy=False), np.concatenate([[0], used_sizes.cumsum()]).astype(np.intp))


def row_by_row(what: str, instead: str) -> InputError:
    """The error for a release from single rows, of which a user may have many."""
    return InputError(
        f"{what}: that is released from single rows, of which one user may have many.",
        source="the argument users",
        remedy=f"give {instead}, known without looking at the data.",
    )


class UserRecords(Records):
    """Records of users: batches, `order` and the length count users, and a user's gradient is the mean of its rows'."""

    def __init__(
        self, users: UserRows, table: Any, targets: Array, *, weights: Array | None, order: Index | None, norms: Array, **options: Any
    ) -> None:
        sizes = np.diff(users.starts)
        # Rounded down: the shares of a user add up to 1 at most.
        shares = np.repeat((1.0 - 1e-12) / sizes, sizes)
        shares = shares if weights is None else shares * weights[users.rows]
        super().__init__(table[users.rows], targets[users.rows], weights=shares, order=order, norms=norms[users.rows], **options)
        self._users = users

    def __len__(self) -> int:
        return self._users.users

    def _parts(self, batch: slice | Index, at_once: int) -> list[slice | Index]:
        """The rows of a batch of users in chunks, as places in the table."""
        chosen = batch if self.order is None else self.order[batch]
        rows = self._users.of(chosen)
        return [rows[part] for part in _chunks(len(rows), self._entries, at_once)]


def require_radius(feature_norm: float) -> float:
    """R as a float, from 1e-100 to 1e100: squares of rows at the bound neither vanish nor overflow."""
    radius = require_positive("feature_norm", feature_norm)
    if not _SMALLEST <= radius <= _LARGEST:
        raise InputError(
            f"feature_norm = {feature_norm!r}; it needs a number from {_SMALLEST:g} to {_LARGEST:g}.", remedy="scale the features first"
        )
    return radius


def fits_densely(records: int, columns: int) -> bool:
    """Whether a dense copy of so many rows is small enough to make one."""
    return records * columns <= _MOST_DENSE


def _width(table: Any) -> int:
    """Entries a row, on average."""
    return int(table.shape[1] if isinstance(table, np.ndarray) else table.nnz // table.shape[0] + 1)


def _chunks(count: int, width: int, at_once: int = _CHUNK) -> list[slice]:
    size = max(1, at_once // max(width, 1))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]
