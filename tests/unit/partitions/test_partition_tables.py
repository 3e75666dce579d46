"""Tables in blocks are read as they are declared; a partition that is not as the others is refused by its name and the column's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.delayed import delayed
from partitioned_records import COLUMNS, frame, records, written

from lethe.errors import InputError, LetheError
from lethe.partitions import array_table, dask_table, parquet_table
from lethe.partitions.block import Block


def whole(block: Block) -> tuple[Any, Any, Any]:
    return block.features.copy(), block.targets, block.features.dtype


def read(table: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None, Any]:
    found = [one for one in table.examined(whole)[1] if len(one[0])]
    targets = None if found[0][1] is None else np.concatenate([one[1] for one in found])
    return np.concatenate([one[0] for one in found]), targets, found[0][2]


@pytest.mark.slow
def test_parquet_files_give_the_records_in_the_order_of_their_names(tmp_path: Path) -> None:
    table = frame()
    blocks = written(tmp_path, a=table[:900], b=table[900:])
    assert blocks.columns == (*COLUMNS, "label", "amount")
    features, targets, kind = read(parquet_table(tmp_path, columns=[*COLUMNS, "label"]).with_target("label"))
    np.testing.assert_array_equal(features, records()[0])
    np.testing.assert_array_equal(targets, records()[1])
    assert kind == np.float32
    assert read(blocks.with_target("label"))[2] == np.float64  # with a column of doubles among the features


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: frame(), lambda: frame().astype({"age": "Float32", "visits": "float64"})])
def test_frames_of_dask_give_the_same(make: Callable[[], pd.DataFrame]) -> None:
    collection = dd.from_pandas(make(), npartitions=4)
    expected = make()[list(COLUMNS)].to_numpy(dtype=float)
    for table in (
        dask_table(collection[[*COLUMNS, "label"]]).with_target("label"),
        dask_table(collection[list(COLUMNS)], collection["label"]),
    ):
        features, targets, _ = read(table)
        np.testing.assert_array_equal(features, expected)
        np.testing.assert_array_equal(targets, records()[1])


def test_arrays_of_dask_give_the_same() -> None:
    features, labels, _ = records()
    found, targets, kind = read(dask_table(da.from_array(features, chunks=(400, 2)), da.from_array(labels, chunks=400)))
    np.testing.assert_array_equal(found, features)
    np.testing.assert_array_equal(targets, labels)
    assert kind == np.float32


WRONG: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "type": (lambda part: part.astype({"height": "float64"}), "column 'height': it holds (float64|double); the"),
    "order": (lambda part: part[["height", "age", *part.columns[2:]]], "column 'age': ('height' stands|its column 1 is 'height')"),
    "missing column": (lambda part: part.drop(columns="visits"), "column 'visits'"),
    "NaN": (lambda part: part.assign(weight=part["weight"].where(part.index != part.index[3]).astype("float32")), "column 'weight'"),
    "infinity": (lambda part: part.assign(weight=part["weight"].where(part.index != part.index[3], np.inf)), "row 3 holds inf"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", WRONG)
def test_a_partition_unlike_the_others_is_named_with_its_column(fault: str, tmp_path: Path) -> None:
    change, words = WRONG[fault]
    table = frame()
    with pytest.raises(InputError, match=words) as refused:
        read(written(tmp_path, a=table[:900], b=change(table[900:])).with_target("label"))
    assert "b.parquet" in str(refused.value)
    parts = [delayed(part) for part in (table[:500], change(table[500:]))]
    lying = dd.from_delayed(parts, meta=table[:0], verify_meta=False)
    with pytest.raises(InputError, match=words) as refused:
        read(dask_table(lying).with_target("label"))
    assert "partition 1" in str(refused.value)
    assert "nothing was released" in str(refused.value)


def test_a_partition_that_dask_cannot_compute_is_named() -> None:
    def fails(part: pd.DataFrame) -> pd.DataFrame:
        raise RuntimeError("no such luck")

    with pytest.raises(InputError, match="partition 0: cannot be computed: no such luck"):
        read(dask_table(dd.from_pandas(frame(), npartitions=2).map_partitions(fails, meta=frame()[:0]), workers=1))


@pytest.mark.slow
def test_blocks_of_arrays_unlike_the_others_are_named() -> None:
    features, labels, _ = records()
    blocks = da.from_array(features, chunks=(500, 5))
    for change, words in (
        (lambda part: part[:, :4], r"partition 2, column 'all': got shape \(500, 4\)"),
        (lambda part: part.astype(np.float64), "partition 2, column 'all': it holds float64"),
        (lambda part: part * np.float32(np.nan), "partition 2, column 0: row 0 holds nan"),
    ):
        odd = blocks.map_blocks(lambda part, block_id, change=change: change(part) if block_id[0] == 2 else part, dtype=np.float32)
        with pytest.raises(InputError, match=words):
            read(dask_table(odd, da.from_array(labels, chunks=500)))
    short = da.from_array(labels, chunks=500).map_blocks(lambda part: part[:-1], dtype=labels.dtype)
    with pytest.raises(InputError, match=r"partition 0, column 'y': got shape \(499,\)"):
        read(dask_table(blocks, short))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: parquet_table(folder / "none"), "it needs a file, a folder"),
        (lambda folder: parquet_table(3), "paths: got 3; it needs a file"),
        (lambda folder: parquet_table([folder / "a.parquet", 3]), "it needs a file, a folder, a pattern or a list of files"),
        (lambda folder: parquet_table([]), r"paths: got \[\]; it needs a file"),
        (lambda folder: parquet_table(folder / "text.parquet"), "cannot be read as a Parquet file"),
        (lambda folder: parquet_table(folder / "a.parquet", columns=["agee"]), "columns: got 'agee'"),
        (
            lambda folder: parquet_table(folder / "a.parquet", columns=["age"]).with_target("label"),
            r"y: got 'label'; it needs names of columns, and the table has 'age'\.\n.*\n.*columns= of parquet_table",
        ),
        (
            lambda folder: parquet_table(folder / "a.parquet", columns=["label"]).with_beside(weights="age", users=None),
            "sample_weight: got 'age'; it needs names of columns, and the table has 'label'",
        ),
        (
            lambda folder: parquet_table(folder / "a.parquet").with_target("labels"),
            "y: got 'labels'; it needs names of columns",
        ),
        (lambda folder: read(parquet_table(folder / "words.parquet")), "column 'name': it holds object; it needs numbers"),
        (lambda folder: read(parquet_table(folder / "gaps.parquet")), "column 'count': a value is missing"),
        (lambda folder: parquet_table([folder / "a.parquet", folder / "nobody.parquet"]), "nobody.parquet: holds no records"),
        (lambda folder: read(dask_table(dd.from_map(frame, [20, 0, 3]))), "partition 1: holds no records"),
        (lambda folder: read(array_table(np.ones((0, 2)))), "holds no records"),
        (lambda folder: array_table(folder / "a.parquet"), "cannot be read as a .npy file"),
        (lambda folder: array_table(np.ones(3)), r"X: got shape \(3,\)"),
        (lambda folder: array_table(np.ones((3, 2)), np.ones(4)), r"y: got shape \(4,\)"),
        (lambda folder: array_table(np.array([["a"]])), "X: got <U1; it needs numbers"),
        (lambda folder: array_table(np.ones((3, 2))).with_target("a"), "columns of an array have no names"),
        (lambda folder: dask_table(np.ones((3, 2))), "X: got ndarray"),
        (lambda folder: dask_table(da.ones(3)), "X: got Array"),
        (lambda folder: dask_table(dd.from_pandas(frame(20), npartitions=2)["age"]), "X: got Series"),
        (lambda folder: dask_table(dd.from_pandas(frame(20), npartitions=2), np.ones(20)), "y: got ndarray; it needs one column"),
        (lambda folder: dask_table(da.ones((4, 2), chunks=2), da.ones(4, chunks=4)), "y: got 1 partitions; it needs one column in the 2"),
        (lambda folder: dask_table(da.ones((4, 2), chunks=2), client=3), "client: got int"),
    ],
)
def test_what_is_no_table_is_refused_in_a_sentence(make: Callable[[Path], Any], words: str, tmp_path: Path) -> None:
    frame(20).to_parquet(tmp_path / "a.parquet")
    frame(20)[:0].to_parquet(tmp_path / "nobody.parquet")
    pd.DataFrame({"name": ["a", "b"]}).to_parquet(tmp_path / "words.parquet")
    pd.DataFrame({"count": pd.array([1, None], dtype="Int64")}).to_parquet(tmp_path / "gaps.parquet")
    (tmp_path / "text.parquet").write_text("no")
    with pytest.raises(InputError, match=words):
        make(tmp_path)


def test_records_are_found_by_their_numbers() -> None:
    features, _, _ = records(100)
    table, _ = array_table(features, blocks=130, workers=1).examined(_shape)  # a hundred: a record each
    numbers = np.array([99, 0, 17, 42, 43])
    (found,) = table.sum(_rows_summed, records=numbers)
    np.testing.assert_allclose(found, features[numbers].sum(axis=0, dtype=np.float64), rtol=0.0, atol=1e-12)
    assert len(table._at(numbers)) == 5
    for wrong in ([1, 1], [100], [-1], []):
        with pytest.raises(LetheError, match="records: they need numbers from 0 to 99, each once"):
            table.sum(_rows_summed, records=np.array(wrong, dtype=np.intp))


def _shape(block: Any) -> Any:
    return block.features.shape


def _rows_summed(block: Any) -> Any:
    return (block.features.sum(axis=0, dtype=np.float64),)


def test_parquet_files_are_read_without_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes with Dask, and not with what reads Parquet."""
    frame(20).to_parquet(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pandas", None)
    table = parquet_table(tmp_path / "a.parquet", columns=[*COLUMNS, "label"]).with_target("label")
    np.testing.assert_array_equal(read(table)[0], records(20)[0])
