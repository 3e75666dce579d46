"""Workers of Dask that are paused because their memory is full: a pass that stands still is ended with the numbers."""

from __future__ import annotations

from typing import Any

from lethe.errors import LetheError

SMALLER_PARTITIONS = (
    "make partitions smaller where they are read (dd.read_parquet(..., split_row_groups=True), smaller row groups or chunks), persist "
    "less, or give workers more memory (memory_limit): a worker holds about two blocks a thread, beside what is persisted"
)


def refuse_paused(client: Any, *, done: int, blocks: int, largest: int) -> None:
    """End a pass that cannot go on.

    Args:
        client: of the cluster.
        done: blocks of this pass that came.
        blocks: of this pass.
        largest: bytes of the largest of them.
    Raises:
        LetheError: at least one worker is paused, and none computes anything.
    """
    workers = list(client.scheduler_info(n_workers=-1)["workers"].values())
    paused = [worker for worker in workers if worker["status"] == "paused"]
    if not paused or any(worker["metrics"]["task_counts"].get("executing") for worker in workers):
        return
    held = ", ".join(f"{_gigabytes(worker['metrics']['memory'])} of {_gigabytes(worker['memory_limit'])}" for worker in paused[:4])
    size = f"the largest of them holds {_gigabytes(largest)} as an array" if done else "how large blocks are is not known yet"
    raise LetheError(
        f"partitions: {len(paused)} of {len(workers)} workers are paused and full ({held}); {done} of {blocks} blocks were read, {size}.",
        source="Dask; nothing was released",
        remedy=SMALLER_PARTITIONS,
    )


def _gigabytes(size: int | None) -> str:
    return f"{size / 1e9:.3g} GB" if size else "no limit"
