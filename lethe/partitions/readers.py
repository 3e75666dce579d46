"""Readers: Blocks of frames and of arrays, each checked against what the first of them is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from lethe.errors import InputError
from lethe.partitions.block import Block, Values, refused
from lethe.partitions.table import TableReader

_NUMBERS = "biuf"
_ENCODE = "leave the column out, or write it as numbers by a public rule, before"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameReader:
    """Blocks of pandas' frames, or of columns read from a file.

    Args:
        names: of all columns that are used, in their order.
        kinds: their types, as their frame writes them.
        left_out: what else the files hold, which the table was made without.
        target: the column that is no feature; None: all are.
        weights, users: the columns that are none either: what records weigh, and whose they are.
        apart: whether targets come beside the frame, of type `target_kind`.
        target_kind: of targets that come apart.
    """

    names: tuple[Any, ...]
    kinds: tuple[str, ...]
    left_out: tuple[Any, ...] = ()
    target: Any = None
    weights: Any = None
    users: Any = None
    apart: bool = False
    target_kind: str = ""

    @property
    def columns(self) -> tuple[Any, ...]:
        """The features."""
        beside = [name for name in (self.target, self.weights, self.users) if name is not None]
        return tuple(name for name in self.names if name not in beside)

    @property
    def has_targets(self) -> bool:
        """Whether there are targets."""
        return self.apart or self.target is not None

    def with_target(self, target: Any) -> Self:
        """The same, with one of the columns as targets.

        Raises:
            InputError: there is no such column, it holds weights or users, or there are targets already.
        """
        if self.has_targets:
            raise InputError("y: the table has its targets already.", source="the argument y", remedy="leave y out")
        self._require_column("y", target)
        return replace(self, target=target)._each_of_its_own()

    @property
    def has_weights(self) -> bool:
        """Whether a column was named."""
        return self.weights is not None

    @property
    def has_users(self) -> bool:
        """Whether a column was named."""
        return self.users is not None

    def with_beside(self, *, weights: Any, users: Any) -> Self:
        """The same, with columns that are no features.

        Raises:
            InputError: there is no such column, one is named twice, or another was named before.
        """
        for argument, name, before in (("sample_weight", weights, self.weights), ("users", users, self.users)):
            if name is not None:
                self._require_column(argument, name)
                if before not in (None, name):  # which would become a feature
                    raise InputError(
                        f"{argument}: got {name!r}; the table has {before!r} as such already.",
                        source=f"the argument {argument}",
                        remedy="leave it out, or give the table without with_beside",
                    )
        weights, users = (self.weights if weights is None else weights, self.users if users is None else users)
        return replace(self, weights=weights, users=users)._each_of_its_own()

    def _each_of_its_own(self) -> Self:
        named = [name for name in (self.target, self.weights, self.users) if name is not None]
        if len(set(named)) < len(named):
            raise InputError(f"y, sample_weight, users: got {named}; each needs a column of its own.", source="the arguments of fit")
        return self

    def _require_column(self, argument: str, name: Any) -> None:
        if isinstance(name, str) and name in self.left_out:
            raise InputError(
                f"{argument}: got {name!r}, which stands in the files; columns= left it out of the table.",
                source=f"the argument {argument}, and columns of parquet_table",
                remedy=f"add it, columns=[..., {name!r}]: what fit is given as {argument} is no feature.",
            )
        if not isinstance(name, str) or name not in self.names:
            shown = ", ".join(map(repr, self.names[:10])) + (", ..." if len(self.names) > 10 else "")
            raise InputError(
                f"{argument}: got {name!r}; the table has the columns {shown}."
                if isinstance(name, str)
                else f"{argument}: got {type(name).__name__}; of a table in blocks it is the name of a column: {shown}.",
                source=f"the argument {argument}",
            )

    def __call__(self, stored: Any, name: str) -> Block:
        """A block of a frame, or of (frame, targets).

        Raises:
            InputError: other columns, another order of them, another type, or missing values.
        """
        frame, targets = stored if self.apart else (stored, None)
        got = list(frame.columns)
        if got != list(self.names):
            place = next(
                (at for at, pair in enumerate(zip(got, self.names, strict=False)) if pair[0] != pair[1]), min(len(got), len(self.names))
            )
            there, needed = (repr(some[place]) if place < len(some) else "nothing" for some in (got, self.names))
            column = self.names[place] if place < len(self.names) else got[place]
            raise refused(
                name,
                column,
                f"its column {place + 1} is {there}; in the table it is {needed}",
                "give every partition the same columns in the same order",
            )
        for column, kind, dtype in zip(self.names, self.kinds, frame.dtypes, strict=True):
            if str(dtype) != kind:
                raise _other_type(name, column, str(dtype), kind)
        if self.target is not None:
            targets = frame[self.target]
        elif targets is not None and str(targets.dtype) != self.target_kind:
            raise _other_type(name, "y", str(targets.dtype), self.target_kind)
        if targets is not None and len(targets) != len(frame):
            raise refused(name, "y", f"{len(targets)} targets for {len(frame)} records", "partition both alike")
        beside = [None if column is None else frame[column].to_numpy() for column in (self.weights, self.users)]
        return self._block(name, len(frame), [frame[column] for column in self.columns], targets, *beside)

    def _block(self, name: str, records: int, series: list[Any], targets: Any, weights: Values | None, users: Values | None) -> Block:
        kind = common_type(self.columns, [one.dtype for one in series], name)
        # Column by column, as they are stored; transposed it is a table of records.
        held = np.empty((len(series), records), kind)
        for place, one in enumerate(series):
            held[place] = one.to_numpy(dtype=kind, na_value=np.nan) if hasattr(one.dtype, "na_value") else one.to_numpy()
        goal = None if targets is None else targets.to_numpy()
        return Block(name=name, columns=self.columns, features=held.T, targets=goal, weights=weights, users=users)


class WithoutNames:
    """What readers of arrays share: columns that have no names stand nowhere but among the features."""

    __slots__ = ()
    has_weights, has_users = False, False

    def with_beside(self, *, weights: Any, users: Any) -> Self:
        """Columns of an array have no names.

        Raises:
            InputError: always.
        """
        argument, got = ("sample_weight", weights) if weights is not None else ("users", users)
        raise InputError(
            f"{argument}: got {got if isinstance(got, str) else type(got).__name__}; a table in blocks needs a column's name, "
            "and this one has none.",
            source=f"the argument {argument}",
            remedy="give a table of Parquet files or a DataFrame of Dask, whose columns have names.",
        )


@dataclass(frozen=True, slots=True, eq=False)
class OuterReader(WithoutNames):
    """What readers share that make something of another's blocks.

    Args:
        read: the other.
    """

    read: TableReader

    @property
    def has_targets(self) -> bool:
        """Whether the other has targets."""
        return self.read.has_targets

    @property
    def has_weights(self) -> bool:
        """Whether the other has weights: they stay in the blocks."""
        return self.read.has_weights

    @property
    def has_users(self) -> bool:
        """Whether the other has users: they stay in the blocks."""
        return self.read.has_users

    def with_target(self, target: Any) -> Self:
        """As the other does it."""
        return replace(self, read=self.read.with_target(target))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayReader(WithoutNames):
    """Blocks of arrays.

    Args:
        width: d.
        kind: the type of the features.
        target_kind: of the targets; None: there are none.
    """

    width: int
    kind: str
    target_kind: str | None = None

    @property
    def columns(self) -> tuple[int, ...]:
        """Numbers from 0."""
        return tuple(range(self.width))

    @property
    def has_targets(self) -> bool:
        """Whether there are targets."""
        return self.target_kind is not None

    def with_target(self, target: Any) -> Self:
        """Columns of an array have no names.

        Raises:
            InputError: always.
        """
        raise InputError(
            f"y: got {target!r}; columns of an array have no names.",
            source="the argument y",
            remedy="give X and y as arrays, both in blocks",
        )

    def __call__(self, stored: Any, name: str) -> Block:
        """A block of (features, targets or None).

        Raises:
            InputError: another number of columns, or another type.
        """
        features, targets = (None if one is None else np.asarray(one) for one in stored)
        if features is None or features.ndim != 2 or features.shape[1] != self.width:
            shape = None if features is None else features.shape
            raise refused(name, "all", f"got shape {shape}; it needs (records, {self.width})", "give every partition the same columns")
        if str(features.dtype) != self.kind:
            raise _other_type(name, "all", str(features.dtype), self.kind)
        if targets is not None:
            if str(targets.dtype) != self.target_kind:
                raise _other_type(name, "y", str(targets.dtype), str(self.target_kind))
            if targets.shape != (len(features),):
                raise refused(name, "y", f"got shape {targets.shape}; it needs ({len(features)},)", "give one target for each record")
        return Block(
            name=name, columns=self.columns, features=features.astype(single_or_double(features.dtype), copy=False), targets=targets
        )


def common_type(columns: tuple[Any, ...], kinds: list[Any], name: str) -> np.dtype[Any]:
    """float32 where all columns fit in it, as NumPy counts, else float64.

    Args:
        columns: their names.
        kinds: their types, NumPy's or of pandas' own.
        name: of the partition.
    Raises:
        InputError: a column holds no numbers, or there is none.
    """
    if not columns:
        raise refused(name, "all", "there is no column besides the target", "give features")
    for column, kind in zip(columns, kinds, strict=True):
        if getattr(kind, "kind", "O") not in _NUMBERS:
            raise refused(name, column, f"it holds {kind}; it needs numbers", _ENCODE)
    return single_or_double(
        np.result_type(*(kind if isinstance(kind, np.dtype) else getattr(kind, "numpy_dtype", np.float64) for kind in kinds))
    )


def single_or_double(kind: np.dtype[Any]) -> np.dtype[Any]:
    """float32 stays; all else becomes float64."""
    return np.dtype(np.float32 if kind == np.float32 else np.float64)


def require_numbers(name: str, kind: Values | np.dtype[Any]) -> None:
    """Refuse an array that holds no numbers.

    Raises:
        InputError: see above.
    """
    dtype = kind.dtype if isinstance(kind, np.ndarray) else kind
    if dtype.kind not in _NUMBERS:
        raise InputError(f"{name}: got {dtype}; it needs numbers.", source=f"the argument {name}", remedy=_ENCODE)


def _other_type(name: str, column: Any, got: str, needed: str) -> InputError:
    return refused(name, column, f"it holds {got}; the other partitions hold {needed}", "write all partitions with the same types")
