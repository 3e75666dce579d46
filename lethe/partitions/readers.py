"""Readers that make Blocks of frames and arrays, each checked to have the columns and types of the first.

files.py and dask_tables.py make one for their kind of partition; blocks of other columns or types are refused, naming no value.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from lethe.errors import InputError
from lethe.partitions.block import Block, refused

_NUMBERS = "biuf"
_ENCODE = "leave the column out, or write it as numbers by a public rule, before"
_ARGUMENTS = {"targets": "y", "weights": "sample_weight", "users": "users"}


class TableReader(ABC):
    """Makes a Block of a partition as it is stored, and refuses one that is not as the others. Columns have no names unless one says so."""

    __slots__ = ()

    @property
    @abstractmethod
    def columns(self) -> tuple[Any, ...]:
        """Names of the features, or their numbers."""

    @property
    @abstractmethod
    def roles(self) -> frozenset[str]:
        """Which of targets, weights and users blocks come with."""

    def with_columns(self, **named: Any) -> Self:
        """The same, with columns that are no features: targets, weights of records, users; an InputError where it has none such."""
        raise _without_names(named)

    @abstractmethod
    def __call__(self, stored: Any, name: str) -> Block:
        """The block, or an InputError that names partition and column: other columns, another type, or missing values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameReader(TableReader):
    """Blocks of pandas' frames, or of columns read from a file.

    All columns that are used have `names`, in their order, and `kinds`, types as their frame writes them; targets, weights and users are
    `named` among them. `target_kind` is of targets that come beside the frame, None where they do not.
    """

    names: tuple[Any, ...]
    kinds: tuple[str, ...]
    named: Mapping[str, Any] = field(default_factory=dict)
    target_kind: str | None = None

    @property
    def columns(self) -> tuple[Any, ...]:
        """The features."""
        return tuple(name for name in self.names if name not in self.named.values())

    @property
    def roles(self) -> frozenset[str]:
        """The roles that named columns have: weights, users."""
        return frozenset([*self.named, *(["targets"] if self.target_kind is not None else [])])

    def with_columns(self, **named: Any) -> Self:
        """This reader with columns of the frame, by name, in these roles."""
        named = {role: name for role, name in named.items() if name is not None}
        for role, name in named.items():
            argument, before = _ARGUMENTS[role], self.named.get(role)
            self._require_column(argument, name)
            if role in self.roles and (role == "targets" or before != name):  # it would become a feature
                raise InputError(
                    f"{argument}: got {name!r}; the table has {'its targets' if role == 'targets' else repr(before)} already.",
                    source=f"the argument {argument}",
                    remedy="leave it out, or give the table without it",
                )
        whole = {**self.named, **named}
        if len(set(whole.values())) < len(whole):
            listed = list(whole.values())
            raise InputError(f"y, sample_weight, users: got {listed}; each needs a column of its own.", source="the arguments of fit")
        return replace(self, named=whole)

    def only(self, names: tuple[Any, ...]) -> Self:
        """The same, of some of the columns."""
        for name in names:
            self._require_column("columns", name)
        if len(set(names)) < len(names):
            raise InputError(f"columns: got {list(names)}; each needs to be named once.", source="the argument columns")
        return replace(self, names=names, kinds=tuple(self.kinds[self.names.index(name)] for name in names))

    def _require_column(self, argument: str, name: Any) -> None:
        if not isinstance(name, str) or name not in self.names:
            column_list = ", ".join(map(repr, self.names[:10])) + (", ..." if len(self.names) > 10 else "")
            got = repr(name) if isinstance(name, str) else type(name).__name__
            raise InputError(
                f"{argument}: got {got}; it needs names of columns, and the table has {column_list}.",
                source=f"the argument {argument}",
                remedy="name a column that the table has; what columns= of parquet_table leaves out, it has not",
            )

    def __call__(self, stored: Any, name: str) -> Block:
        """A block of a frame, or of (frame, targets)."""
        frame, targets = stored if self.target_kind is not None else (stored, None)
        self.require_like(frame, name)
        if targets is not None:
            _require_type(name, "y", targets.dtype, self.target_kind)
            if len(targets) != len(frame):
                raise refused(name, "y", f"{len(targets)} targets for {len(frame)} records", "partition both alike")
        columns = self.columns
        kinds = dict(zip(frame.columns, frame.dtypes, strict=True))
        kind = _common_type(columns, [kinds[column] for column in columns], name)
        # Column by column, as they are stored; transposed it is a table of records.
        features = np.empty((len(columns), len(frame)), kind)
        for index, column in enumerate(columns):
            series = frame[column]
            features[index] = series.to_numpy(dtype=kind, na_value=np.nan) if hasattr(kinds[column], "na_value") else series.to_numpy()
        role_columns = {role: frame[column] for role, column in self.named.items()} | ({} if targets is None else {"targets": targets})
        values = {role: series.to_numpy() for role, series in role_columns.items()}
        return Block(name=name, columns=columns, features=features.T, **values)

    def require_like(self, frame: Any, name: str) -> None:
        """Refuse a frame with other columns, another order of them, or other types."""
        got = [*frame.columns, *["nothing"] * len(self.names)]
        for index, column in enumerate(self.names):
            if got[index] != column:
                what = f"its column {index + 1} is {got[index]!r}; in the table it is {column!r}"
                raise refused(name, column, what, "give every partition the same columns in the same order")
        if len(frame.columns) > len(self.names):
            raise refused(name, got[len(self.names)], "the table has no such column", "give every partition the same columns")
        for column, kind, dtype in zip(self.names, self.kinds, frame.dtypes, strict=True):
            _require_type(name, column, dtype, kind)


@dataclass(frozen=True, slots=True, eq=False)
class OuterReader(TableReader):
    """What readers share that make something of another's blocks; of its columns they may name the target alone."""

    read: TableReader

    @property
    def columns(self) -> tuple[Any, ...]:
        """As the other has them."""
        return self.read.columns

    @property
    def roles(self) -> frozenset[str]:
        """As the other has them."""
        return self.read.roles

    def with_columns(self, **named: Any) -> Self:
        """This reader with columns of the outer frame in these roles."""
        if any(named.get(role) is not None for role in ("weights", "users")):
            raise _without_names({**named, "targets": None})
        return replace(self, read=self.read.with_columns(**named))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayReader(TableReader):
    """Blocks of arrays of d columns, the types of features and of targets, None where there are none."""

    width: int
    kind: str
    target_kind: str | None = None

    @property
    def columns(self) -> tuple[int, ...]:
        """Numbers from 0."""
        return tuple(range(self.width))

    @property
    def roles(self) -> frozenset[str]:
        """No roles: arrays have no named columns."""
        return frozenset() if self.target_kind is None else frozenset(["targets"])

    def __call__(self, stored: Any, name: str) -> Block:
        """A block of (features, targets or None)."""
        features, targets = (None if array is None else np.asarray(array) for array in stored)
        if features is None or features.ndim != 2 or features.shape[1] != self.width:
            shape = None if features is None else features.shape
            raise refused(name, "all", f"got shape {shape}; it needs (records, {self.width})", "give every partition the same columns")
        _require_type(name, "all", features.dtype, self.kind)
        if targets is not None:
            _require_type(name, "y", targets.dtype, self.target_kind)
            if targets.shape != (len(features),):
                raise refused(name, "y", f"got shape {targets.shape}; it needs ({len(features)},)", "give one target for each record")
        features = features.astype(_single_or_double(features.dtype), copy=False)
        return Block(name=name, columns=self.columns, features=features, targets=targets)


def _without_names(named: Mapping[str, Any]) -> InputError:
    argument, name = next((_ARGUMENTS[role], name) for role, name in named.items() if name is not None)
    got = name if isinstance(name, str) else type(name).__name__
    return InputError(
        f"{argument}: got {got}; it needs a column's name, and columns of an array have no names.",
        source=f"the argument {argument}",
        remedy="give X and y as arrays, both in blocks, or a table of Parquet files or a DataFrame of Dask",
    )


def _common_type(columns: tuple[Any, ...], kinds: list[Any], name: str) -> np.dtype[Any]:
    """float32 where all columns fit in it, as NumPy counts, else float64; an InputError where one holds no numbers."""
    if not columns:
        raise refused(name, "all", "there is no column besides the target", "give features")
    for column, kind in zip(columns, kinds, strict=True):
        if getattr(kind, "kind", "O") not in _NUMBERS:
            raise refused(name, column, f"it holds {kind}; it needs numbers", _ENCODE)
    common = (kind if isinstance(kind, np.dtype) else getattr(kind, "numpy_dtype", np.float64) for kind in kinds)
    return _single_or_double(np.result_type(*common))


def require_numbers(name: str, kind: np.dtype[Any]) -> None:
    """Refuse the type of an array that holds no numbers."""
    if kind.kind not in _NUMBERS:
        raise InputError(f"{name}: got {kind}; it needs numbers.", source=f"the argument {name}", remedy=_ENCODE)


def _single_or_double(kind: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32 if kind == np.float32 else np.float64)


def _require_type(name: str, column: Any, got: Any, needed: str | None) -> None:
    if str(got) != needed:
        raise refused(name, column, f"it holds {got}; the other partitions hold {needed}", "write all partitions with the same types")
