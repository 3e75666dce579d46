"""Tables in blocks are read as they are declared, one task a partition; one unlike the others, or that does not go on, is named."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.base import compute
from dask.delayed import delayed
from distributed import KilledWorker
from partitioned_records import COLUMNS, RECORDS, frame, records, written

from lethe.errors import InputError, LetheError
from lethe.partitions import array_table, dask_table, dask_tables, parquet_table
from lethe.partitions.block import Block
from lethe.partitions.dask_tables import OnCluster, _refuse_paused
from lethe.partitions.passes import Work

FEATURES, LABELS, _ = records()


def everything(block: Block) -> tuple[Any, Any, Any]:
    return block.features.copy(), block.targets, block.features.dtype


def moments(block: Block) -> tuple[Any, ...]:
    return (block.features.sum(axis=0, dtype=np.float64),)


def read(table: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None, Any]:
    found = [one for one in table.examined(everything)[1] if len(one[0])]
    targets = None if found[0][1] is None else np.concatenate([one[1] for one in found])
    return np.concatenate([one[0] for one in found]), targets, found[0][2]


def test_parquet_files_give_the_records_in_the_order_of_their_names(tmp_path: Path) -> None:
    table = frame()
    blocks = written(tmp_path, a=table[:900], b=table[900:])
    assert blocks.columns == (*COLUMNS, "label", "amount")
    features, targets, kind = read(parquet_table(tmp_path, columns=[*COLUMNS, "label"]).with_target("label"))
    np.testing.assert_array_equal(features, records()[0])
    np.testing.assert_array_equal(targets, records()[1])
    assert kind == np.float32
    assert read(blocks.with_target("label"))[2] == np.float64  # with a column of doubles among the features


@pytest.mark.parametrize("types", [{}, {"age": "Float32", "visits": "float64"}, None])
def test_collections_of_dask_give_the_same(types: dict[str, Any] | None) -> None:
    collection = dd.from_pandas(frame().astype(types or {}), npartitions=4)
    tables = [dask_table(collection[[*COLUMNS, "label"]]).with_target("label"), dask_table(collection[list(COLUMNS)], collection["label"])]
    if types is None:
        tables = [dask_table(da.from_array(FEATURES, chunks=(400, 2)), da.from_array(LABELS, chunks=400))]
    for table in tables:
        features, targets, kind = read(table)
        np.testing.assert_array_equal(features, FEATURES)
        np.testing.assert_array_equal(targets, LABELS)
        assert kind == (np.float64 if types else np.float32)


WRONG: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "type": (lambda part: part.astype({"height": "float64"}), "column 'height': it holds (float64|double); the"),
    "order": (lambda part: part[["height", "age", *part.columns[2:]]], "column 'age': ('height' stands|its column 1 is 'height')"),
    "missing column": (lambda part: part.drop(columns="visits"), "column 'visits'"),
    "NaN": (lambda part: part.assign(weight=part["weight"].where(part.index != part.index[3]).astype("float32")), "column 'weight'"),
    "infinity": (lambda part: part.assign(weight=part["weight"].where(part.index != part.index[3], np.inf)), "row 3 holds inf"),
}


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


def test_blocks_of_arrays_unlike_the_others_are_named() -> None:
    blocks, labels = da.from_array(FEATURES, chunks=(500, 5)), da.from_array(LABELS, chunks=500)
    for change, words in (
        (lambda part: part[:, :4], r"partition 2, column 'all': got shape \(500, 4\)"),
        (lambda part: part.astype(np.float64), "partition 2, column 'all': it holds float64"),
        (lambda part: part * np.float32(np.nan), "partition 2, column 0: row 0 holds nan"),
    ):
        odd = blocks.map_blocks(lambda part, block_id, change=change: change(part) if block_id[0] == 2 else part, dtype=np.float32)
        with pytest.raises(InputError, match=words):
            read(dask_table(odd, labels))
    short = labels.map_blocks(lambda part: part[:-1], dtype=labels.dtype)
    with pytest.raises(InputError, match=r"partition 0, column 'y': got shape \(499,\)"):
        read(dask_table(blocks, short))


def test_records_are_found_by_their_numbers() -> None:
    features, _, _ = records(100)
    table, _ = array_table(features, blocks=130, workers=1).examined(everything)  # a hundred: a record each
    numbers = np.array([99, 0, 17, 42, 43])
    (found,) = table.sum(moments, records=numbers)
    np.testing.assert_allclose(found, features[numbers].sum(axis=0, dtype=np.float64), rtol=0.0, atol=1e-12)
    assert len(table._at(numbers)) == 5
    for wrong in ([1, 1], [100], [-1], []):
        with pytest.raises(LetheError, match="records: they need numbers from 0 to 99, each once"):
            table.sum(moments, records=np.array(wrong, dtype=np.intp))


def test_parquet_files_are_read_without_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes with Dask, and not with what reads Parquet."""
    frame(20).to_parquet(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pandas", None)
    table = parquet_table(tmp_path / "a.parquet", columns=[*COLUMNS, "label"]).with_target("label")
    np.testing.assert_array_equal(read(table)[0], records(20)[0])


class Ended:
    """A future that is there."""

    status = "finished"

    def __init__(self, value: Any) -> None:
        self.value = value

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        function(self)

    def result(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    def release(self) -> None:
        pass


class Never(Ended):
    """One that is not, nor ever will be."""

    status = "pending"

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        pass


class Client:
    """A client of no cluster, whose workers are in these states: computes tasks here, and notes what it was asked for."""

    def __init__(self, *states: dict[str, Any], future: Callable[[Any], Ended] = Ended) -> None:
        self.states, self.future, self.cancelled = states, future, 0
        self.tasks: list[Any] = []

    def compute(self, tasks: list[Any]) -> list[Ended]:
        self.tasks.append({key for task in tasks for key in dict(task.dask)})
        return [self.future(value) for value in compute(*tasks, scheduler="synchronous")]

    def cancel(self, futures: list[Any], *, force: bool) -> None:
        self.cancelled += len(futures)

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        assert n_workers == -1  # else those of a large cluster are left out
        return {"workers": {str(at): state for at, state in enumerate(self.states)}}


class Stored:
    """An array that is read piece by piece."""

    dtype, shape, ndim = FEATURES.dtype, FEATURES.shape, 2

    def __getitem__(self, index: Any) -> Any:
        return FEATURES[index]


def whole(part: pd.DataFrame) -> pd.DataFrame:
    return part.copy()


def labels() -> da.Array:
    return da.from_array(LABELS, chunks=300)


def people() -> Any:
    """Five partitions, each made by three tasks."""
    made = [delayed(frame().iloc.__getitem__)(slice(start, start + 300)) for start in range(0, RECORDS, 300)]
    return dd.from_delayed(made, meta=frame()[:0], verify_meta=False)[[*COLUMNS, "label"]].map_partitions(whole)


def shuffled() -> Any:
    whole = dd.from_pandas(frame().assign(kind=np.arange(RECORDS) % 7), npartitions=3)
    return whole.shuffle("kind", shuffle_method="disk")[[*COLUMNS, "label"]]


# Collections, and how many tasks of a pass are not one of a partition, such as a source that all five of them read; None: partitions
# share tasks, or lie across the chunks of what they are made of.
COLLECTIONS: dict[str, tuple[Callable[[], Any], int | None]] = {
    "frame": (lambda: dask_table(people()).with_target("label"), 0),
    "frame and series": (lambda: dask_table(people()[list(COLUMNS)], people()["label"]), 0),
    "coarser frame": (lambda: dask_table(dd.from_pandas(frame(), npartitions=10).repartition(npartitions=5)[[*COLUMNS, "label"]], None), 0),
    "array": (lambda: dask_table(da.from_array(FEATURES, chunks=(300, 2)), labels()), 0),
    "stored array": (lambda: dask_table(da.from_array(Stored(), chunks=(300, 5)), labels()), 1),
    "finer frame": (lambda: dask_table(dd.from_pandas(frame(), npartitions=2).repartition(npartitions=5)).with_target("label"), None),
    "across chunks": (lambda: dask_table(da.from_array(FEATURES, chunks=(300, 2)).rechunk((700, 5)), labels().rechunk(700)), None),
    "shuffled through files": (lambda: dask_table(shuffled()).with_target("label"), None),
    "an alias": (lambda: dask_table(dd.from_pandas(frame(), npartitions=3).partitions[[2, 0, 1]]).with_target("label"), None),
}


@pytest.mark.parametrize("name", COLLECTIONS)
def test_a_pass_is_one_task_a_partition_or_those_of_dask(name: str) -> None:
    """As two, reads go on while what sums them is still being imported, and partitions pile up."""
    make, others = COLLECTIONS[name]
    table, client = make(), Client()
    for executor in (OnCluster(client), table.executor):
        found = list(executor.answers(table.parts, Work(table.read, moments, ())))
        np.testing.assert_allclose(sum(answer.values[0] for answer in found)[:5], FEATURES.sum(axis=0, dtype=np.float64), rtol=1e-9)
        assert sum(answer.seen.records for answer in found) == RECORDS
        if others is not None:
            assert [answer.place for answer in found] == list(range(5))
            assert {answer.size for answer in found} == {300 * len(table.read.columns) * (4 if len(table.read.columns) == 5 else 8)}
            assert len(client.tasks[0]) == 5 + 1 + others  # one is what is done to all


@pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning")  # Dask's own
def test_a_column_of_files_is_read_in_the_partitions_of_the_others(tmp_path: Path) -> None:
    """By itself it would be read in fewer: a file of 20 columns, of which it is one."""
    wide = pd.concat([frame()[["age"]].rename(columns={"age": f"x{at}"}) for at in range(19)], axis=1).assign(label=LABELS)
    wide.to_parquet(tmp_path / "wide.parquet", index=False, row_group_size=100)
    read = dd.read_parquet(tmp_path, split_row_groups=True)
    assert len(read["label"].to_delayed()) < read.npartitions == 15
    table = dask_table(read.drop(columns="label"), read["label"])
    found = list(OnCluster(Client()).answers(table.parts, Work(table.read, everything, ())))
    assert sum(answer.values[1].sum() for answer in found) == LABELS.sum()
    assert sum(answer.seen.records for answer in found) == RECORDS


def test_results_that_look_like_tasks_are_results() -> None:
    """A tuple that begins with a function is a task in the older of Dask's graphs, and a text is a key."""
    odd = delayed(lambda: (len, "abc"), pure=False)()
    parts = [delayed(lambda got, at: pd.DataFrame({"x": [float(got[1] == "abc") + at]}))(odd, at) for at in range(2)]
    table = dask_table(dd.from_delayed(parts, meta=pd.DataFrame({"x": [0.0]}), verify_meta=False))
    for executor in (OnCluster(Client()), table.executor):
        found = executor.answers(table.parts, Work(table.read, moments, ()))
        assert [float(answer.values[0][0]) for answer in found] == [1.0, 2.0]


def worker(status: str, *, executing: int = 0, limit: int | None = 10**9) -> dict[str, Any]:
    tasks = {"executing": executing} if executing else {}
    return {"status": status, "memory_limit": limit, "metrics": {"memory": 9 * 10**8, "task_counts": tasks}}


def test_a_pass_on_paused_workers_ends_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_tables, "STANDSTILL", 0.01)
    table = dask_table(people()).with_target("label")
    ended: Iterator[type[Ended]] = iter([Ended, Ended, Never, Never, Never])
    client = Client(worker("paused"), worker("running"), future=lambda value: next(ended)(value))
    words = r"1 of 2 workers are paused .*\(0.9 GB of 1 GB\).* 2 of 5 blocks were read, the largest of them holds 6e-06 GB"
    with pytest.raises(LetheError, match=words) as caught:
        list(OnCluster(client).answers(table.parts, Work(table.read, moments, ())))
    assert "smaller" in caught.value.remedy
    assert "memory_limit" in caught.value.remedy
    assert client.cancelled == 3
    with pytest.raises(LetheError, match=r"of no limit\).* 0 of 5 blocks were read, how large blocks are is not known yet"):
        list(OnCluster(Client(worker("paused", limit=None), future=Never)).answers(table.parts, Work(table.read, moments, ())))
    for states in ((), (worker("running"),), (worker("paused", executing=1),), (worker("paused"), worker("running", executing=1))):
        _refuse_paused(Client(*states), done=0, blocks=5, largest=0)  # a cluster that goes on is not given up


def test_a_partition_that_killed_its_workers_is_told_with_what_to_do() -> None:
    table = dask_table(people()).with_target("label")
    last = SimpleNamespace(address="tcp://10.0.0.1:4000")
    client = Client(future=lambda value: Ended(KilledWorker("block", last, 3)))
    with pytest.raises(LetheError, match="partition 0: the cluster gave it up") as caught:
        list(OnCluster(client).answers(table.parts, Work(table.read, moments, ())))
    assert "if it was their memory, make partitions smaller" in caught.value.remedy
