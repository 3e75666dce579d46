"""Estimators on a real cluster of two processes: the numbers of the fit in memory, whatever dies, is repeated or is broken off."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.array as da
import dask.dataframe as dd
import joblib
import numpy as np
import pytest
from cluster_fits import ALL, assert_as_in_memory, collection, logistic
from dask import config
from dask.delayed import delayed
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from partitioned_records import COLUMNS, frame

import lethe.estimators
from lethe.audit.config import TwoWorldGame
from lethe.audit.games.two_worlds import play
from lethe.errors import InputError
from lethe.estimators.partitioned.tables import nothing_else
from lethe.partitions import dask_table, parquet_table
from lethe.partitions.dask_tables import Unshown
from lethe.partitions.passes import BlockLocation, BlockResult, Work


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers, each a process of its own; Lethe is imported once, by the server that they are forked from."""
    # Of a worker that was killed a busy machine makes another later than Dask waits for it.
    with config.set({"distributed.worker.multiprocessing-method": "forkserver", "distributed.deploy.lost-worker-timeout": "120s"}):
        get_mp_context().set_forkserver_preload(["distributed", "lethe.estimators"])
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
            Client(cluster) as connected,
        ):
            yield connected


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", ALL)
def test_a_fit_on_the_cluster_is_the_fit_in_memory(name: str, client: Client) -> None:
    executor: Any = dask_table(collection(ALL[name][1])).executor
    assert executor.client is client
    assert_as_in_memory(name, collection(ALL[name][1]))


def test_no_estimator_is_left_out() -> None:
    known = {
        name
        for name in lethe.estimators.__all__
        if issubclass(type(each := getattr(lethe.estimators, name)), type) and hasattr(each, "fit")
    }
    assert {type(make()).__name__ for make, _ in ALL.values()} | {"PrivateSearch"} >= known - {"PublicScaler"}


def test_partitions_that_are_persisted_are_read_as_they_are_and_threads_read_where_no_cluster_is_wanted(client: Client) -> None:
    features, amounts = (da.from_array(frame()[names].to_numpy(), chunks=500).persist() for names in (list(COLUMNS), "amount"))
    for table in (dask_table(collection("amount").persist()), dask_table(features, amounts)):
        executor: Any = table.executor
        assert executor.client is client
        assert_as_in_memory("adassp", table)
    by_threads = dask_table(collection("amount"), workers=2)
    assert not hasattr(by_threads.executor, "client")
    assert_as_in_memory("adassp", by_threads)


def test_workers_read_files_of_parquet_themselves(client: Client, tmp_path: Any) -> None:
    table: Any = frame()[[*COLUMNS, "label"]]
    for name, part in {"a": table[:700], "b": table[700:]}.items():
        part.to_parquet(tmp_path / f"{name}.parquet", index=False, row_group_size=250)
    assert_as_in_memory("objective perturbation", parquet_table(tmp_path, client=client))


def test_a_worker_that_is_killed_in_a_pass_changes_nothing(client: Client) -> None:
    table, passes, killed = dask_table(collection("amount", slow=True), progress=False), [0], list[int]()

    def answers(parts: Sequence[BlockLocation], work: Work) -> Iterator[BlockResult]:
        passes[0] += 1
        for answer in table.executor.answers(parts, work):
            if passes[0] == 2 and not killed:
                numbers: Any = client.run(os.getpid)
                killed.append(min(numbers.values()))
                os.kill(killed[0], signal.SIGKILL)
            yield answer

    assert_as_in_memory("adassp", replace(table, executor=SimpleNamespace(answers=answers)))
    assert killed
    client.wait_for_workers(2, timeout=120)


def test_a_faulty_partition_is_named_and_nothing_is_released(client: Client) -> None:
    table = frame()[[*COLUMNS, "label"]]
    for change, words in (
        (lambda part: part.assign(age=np.float32(np.nan)), "partition 1, column 'age': row 0 holds nan"),
        (lambda part: 1 / 0, "partition 1: cannot be computed: division by zero"),
    ):
        parts = [delayed(table[:500]), delayed(change, pure=False)(table[500:])]
        with pytest.raises(InputError, match=words):
            logistic("objective_perturbation").fit(dd.from_delayed(parts, meta=table[:0], verify_meta=False), "label")


def test_a_task_that_fails_writes_no_records_of_a_batch_and_no_weights_into_logs(client: Client) -> None:
    table, _ = dask_table(collection("label"), progress=False).examined(nothing_else)
    with pytest.raises(InputError, match="cannot be computed: no such luck"):
        table.sum(failing, np.array([0.515273]), records=np.array([411, 1313]))
    logs: Any = client.get_worker_logs()
    written = "\n".join(line for of_one in logs.values() for _, line in of_one)
    assert "Compute Failed" in written
    # Versions of Dask that write arguments down write these.
    assert repr((Unshown(np.array([10])), Work(table.source.read, failing, (0.515273,)))) == "(<records of a batch>, <Work of failing>)"
    for shown in ("array(", "[10", "[113", "515273"):  # records 411 and 1313 are 10 and 113 of their blocks
        assert shown not in written


def failing(block: Any, weights: Any) -> Any:
    raise RuntimeError("no such luck")


def test_an_interrupt_cancels_the_tasks_and_releases_nothing(client: Client) -> None:
    def interrupt(number: int, done: int, blocks: int) -> None:
        if number == 2 and done == 1:
            raise KeyboardInterrupt

    model = logistic("objective_perturbation")
    with pytest.raises(KeyboardInterrupt):
        model.fit(dask_table(collection("label", slow=True), progress=interrupt), "label")
    assert not hasattr(model, "coef_")
    assert not hasattr(model, "statement_")
    deadline = time.monotonic() + 60.0
    while left := client.run_on_scheduler(_blocks_left):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    assert_as_in_memory("adassp", collection("amount"))


def _blocks_left(dask_scheduler: Any) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks if "lethe-block" in str(key)]


def trial(inside: bool, seed: int, mark: Path | None = None) -> float:
    """A training of nothing: its score follows from the world and the seed; one ends its worker by SIGKILL, the first time."""
    if mark is not None and seed % 5 == 0 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return float(np.random.default_rng(seed).normal()) + inside


def test_an_audit_through_joblib_is_the_local_one(client: Client, tmp_path: Path) -> None:
    local = play(trial, TwoWorldGame(runs=20), seed=1)
    with joblib.parallel_config(backend="dask", n_jobs=2):
        spread = play(trial, TwoWorldGame(runs=20), seed=1)
        survived = play(partial(trial, mark=tmp_path / "dead"), TwoWorldGame(runs=20), seed=1)
    assert (tmp_path / "dead").exists()
    for other in (spread, survived):
        np.testing.assert_array_equal(other.in_scores, local.in_scores)
        np.testing.assert_array_equal(other.out_scores, local.out_scores)
    client.wait_for_workers(2, timeout=120)
