"""What a cluster is asked for: a partition is read where its sums are, by one task, and what does not go on is told."""

from __future__ import annotations

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
from partitioned_records import COLUMNS, RECORDS, frame, records

from lethe.errors import LetheError
from lethe.partitions import dask_table, dask_tables
from lethe.partitions.block import Block
from lethe.partitions.dask_tables import OnCluster, _refuse_paused
from lethe.partitions.passes import Work

FEATURES, LABELS, _ = records()


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
    """A client of no cluster: computes tasks here, and notes what it was asked for."""

    def __init__(self, future: Callable[[Any], Ended] = Ended) -> None:
        self.future = future
        self.tasks: list[Any] = []
        self.cancelled = 0

    def compute(self, tasks: list[Any]) -> list[Ended]:
        self.tasks.append({key for task in tasks for key in dict(task.dask)})
        return [self.future(value) for value in compute(*tasks, scheduler="synchronous")]

    def cancel(self, futures: list[Any], *, force: bool) -> None:
        self.cancelled += len(futures)


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


# Collections in five partitions, and how many tasks of each pass are not one of a partition: a source that all of them read.
ALONE: dict[str, tuple[Callable[[], Any], int]] = {
    "frame": (lambda: dask_table(people()).with_target("label"), 0),
    "frame and series": (lambda: dask_table(people()[list(COLUMNS)], people()["label"]), 0),
    "coarser frame": (lambda: dask_table(dd.from_pandas(frame(), npartitions=10).repartition(npartitions=5)[[*COLUMNS, "label"]], None), 0),
    "array": (lambda: dask_table(da.from_array(FEATURES, chunks=(300, 2)), labels()), 0),
    "stored array": (lambda: dask_table(da.from_array(Stored(), chunks=(300, 5)), labels()), 1),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_pass_is_one_task_a_partition(name: str) -> None:
    """As two, reads go on while what sums them is still being imported, and partitions pile up."""
    table, client = ALONE[name][0](), Client()
    assert len(table.parts) == 5
    found = list(OnCluster(client).answers(table.parts, Work(table.read, moments, ())))
    assert len(client.tasks[0]) == 5 + 1 + ALONE[name][1]  # one is what is done to all
    assert [answer.place for answer in found] == list(range(5))
    np.testing.assert_allclose(sum(answer.values[0] for answer in found)[:5], FEATURES.sum(axis=0, dtype=np.float64), rtol=1e-9)
    assert {answer.size for answer in found} == {300 * len(table.read.columns) * (4 if len(table.read.columns) == 5 else 8)}


def moments(block: Block) -> tuple[Any, ...]:
    return (block.features.sum(axis=0, dtype=np.float64),)


def shuffled() -> Any:
    whole = dd.from_pandas(frame().assign(kind=np.arange(RECORDS) % 7), npartitions=3)
    return whole.shuffle("kind", shuffle_method="disk")[[*COLUMNS, "label"]]


# Partitions that share tasks, or that share none but lie across the chunks of what they are made of.
SHARED: dict[str, Callable[[], Any]] = {
    "finer frame": lambda: dask_table(dd.from_pandas(frame(), npartitions=2).repartition(npartitions=5)).with_target("label"),
    "across chunks": lambda: dask_table(da.from_array(FEATURES, chunks=(300, 2)).rechunk((700, 5)), labels().rechunk(700)),
    "shuffled through files": lambda: dask_table(shuffled()).with_target("label"),
    "an alias": lambda: dask_table(dd.from_pandas(frame(), npartitions=3).partitions[[2, 0, 1]]).with_target("label"),
}


@pytest.mark.parametrize("name", SHARED)
def test_partitions_that_share_tasks_are_those_of_dask(name: str) -> None:
    table, client = SHARED[name](), Client()
    for executor in (OnCluster(client), table.executor):
        found = list(executor.answers(table.parts, Work(table.read, moments, ())))
        np.testing.assert_allclose(sum(answer.values[0] for answer in found)[:5], FEATURES.sum(axis=0, dtype=np.float64), rtol=1e-9)
        assert sum(answer.seen.records for answer in found) == RECORDS


def test_what_features_and_targets_are_made_of_is_computed_once() -> None:
    read = list[int]()

    def counted(chunk: Any) -> Any:
        read.append(len(chunk))
        return chunk

    together = da.from_array(np.column_stack([FEATURES, LABELS]), chunks=(300, 6)).map_blocks(counted, meta=np.empty((0, 6)))
    table = dask_table(together[:, :5], together[:, 5])
    read.clear()
    list(OnCluster(Client()).answers(table.parts, Work(table.read, moments, ())))
    assert read == [300] * 5


@pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning")  # Dask's own
def test_a_column_of_files_is_read_in_the_partitions_of_the_others(tmp_path: Path) -> None:
    """By itself it would be read in fewer: a file of 20 columns, of which it is one."""
    wide = pd.concat([frame()[["age"]].rename(columns={"age": f"x{at}"}) for at in range(19)], axis=1).assign(label=LABELS)
    wide.to_parquet(tmp_path / "wide.parquet", index=False, row_group_size=100)
    read = dd.read_parquet(tmp_path, split_row_groups=True)
    assert len(read["label"].to_delayed()) < read.npartitions == 15
    table = dask_table(read.drop(columns="label"), read["label"])
    found = list(OnCluster(Client()).answers(table.parts, Work(table.read, positive, ())))
    assert sum(answer.values for answer in found) == LABELS.sum()
    assert sum(answer.seen.records for answer in found) == RECORDS


def positive(block: Block) -> int:
    return int(block.targets.sum())


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


class Asked(Client):
    """A client whose workers are in a state."""

    def __init__(self, *states: dict[str, Any], future: Callable[[Any], Ended] = Ended) -> None:
        super().__init__(future=future)
        self.states = states

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        assert n_workers == -1  # else those of a large cluster are left out
        return {"workers": {str(at): state for at, state in enumerate(self.states)}}


def half_of_them() -> Callable[[Any], Ended]:
    ended: Iterator[type[Ended]] = iter([Ended, Ended, Never, Never, Never])
    return lambda value: next(ended)(value)


def test_a_pass_on_paused_workers_ends_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_tables, "STANDSTILL", 0.01)
    table = dask_table(people()).with_target("label")
    client = Asked(worker("paused"), worker("running"), future=half_of_them())
    words = r"1 of 2 workers are paused .*\(0.9 GB of 1 GB\).* 2 of 5 blocks were read, the largest of them holds 6e-06 GB"
    with pytest.raises(LetheError, match=words) as caught:
        list(OnCluster(client).answers(table.parts, Work(table.read, moments, ())))
    assert "smaller" in caught.value.remedy
    assert "memory_limit" in caught.value.remedy
    assert client.cancelled == 3
    with pytest.raises(LetheError, match="0 of 5 blocks were read, how large blocks are is not known yet"):
        list(OnCluster(Asked(worker("paused"), future=Never)).answers(table.parts, Work(table.read, moments, ())))


def test_only_a_cluster_that_cannot_go_on_is_given_up() -> None:
    for states in ((), (worker("running"),), (worker("paused", executing=1),), (worker("paused"), worker("running", executing=1))):
        _refuse_paused(Asked(*states), done=0, blocks=5, largest=0)
    with pytest.raises(LetheError, match=r"\(0.9 GB of no limit\)"):
        _refuse_paused(Asked(worker("paused", limit=None)), done=0, blocks=5, largest=0)


def test_a_partition_that_killed_its_workers_is_told_with_what_to_do() -> None:
    table = dask_table(people()).with_target("label")
    last = SimpleNamespace(address="tcp://10.0.0.1:4000")
    client = Client(future=lambda value: Ended(KilledWorker("block", last, 3)))
    with pytest.raises(LetheError, match="partition 0: the cluster gave it up") as caught:
        list(OnCluster(client).answers(table.parts, Work(table.read, moments, ())))
    assert "if it was their memory, make partitions smaller" in caught.value.remedy
