"""Dask's tasks that only one partition needs, run within the task that sums it; separate, Dask would read partitions ahead and fill the
memory.

dask_tables.py calls `partition_tasks` once a table, passes.py `computed` on each block. Dask is a library for computing on a cluster by
graphs of tasks.
"""

import importlib
from collections.abc import Hashable, Sequence
from graphlib import TopologicalSorter
from typing import Any

Graph = dict[Hashable, Any]


class PartitionTasks:
    """Tasks that end in one partition, `keys` of those that give its features, or these and targets; no dataclass: Dask looks into those.

    No other partition needs the tasks of `graph`; they take the results of `inputs`, keys of tasks that are shared or persisted.
    """

    __slots__ = ("graph", "inputs", "keys")

    def __init__(self, keys: tuple[Hashable, ...], graph: Graph, inputs: tuple[Hashable, ...]) -> None:
        self.keys, self.graph, self.inputs = keys, graph, inputs

    def __call__(self, *results: Any) -> Any:
        """The partition, of the results of the inputs: a tuple where it has several keys."""
        # A task without arguments: a result by itself might look like a key or a task.
        inputs = {key: (lambda result=result: result,) for key, result in zip(self.inputs, results, strict=True)}
        values = importlib.import_module("dask").get({**self.graph, **inputs}, list(self.keys))
        return values[0] if len(self.keys) == 1 else tuple(values)


def partition_tasks(partitions: Sequence[tuple[Any, ...]]) -> list[tuple[PartitionTasks, list[Any]]]:
    """For each partition, of which Delayed objects are given, the tasks that only it needs, and what they take from others as Delayed."""
    graphs = {id(collection.dask): collection.dask for collections in partitions for collection in collections}
    together = {key: task for graph in graphs.values() for key, task in graph.items()}
    # Without what is persisted: futures are no tasks.
    nodes: Graph = importlib.import_module("dask._task_spec").convert_legacy_graph(together)
    movable = {key for key, node in nodes.items() if not node.block_fusion}  # Dask finds the barrier of a shuffle by its key
    needs = {key: node.dependencies for key, node in nodes.items()}
    owners: dict[Hashable, int | None] = {}

    def need(key: Hashable, owner: int | None) -> None:
        owners[key] = owner if owners.setdefault(key, owner) == owner else None

    for index, some in enumerate(partitions):
        for one in some:
            need(one.key, index)
    for key in reversed(list(TopologicalSorter(needs).static_order())):
        if key in owners:
            for dependency in needs.get(key, ()):
                need(dependency, owners[key] if key in movable else None)

    def fused(index: int, collections: tuple[Any, ...]) -> tuple[PartitionTasks, list[Any]]:
        graph: Graph = {}
        inputs = list[Any]()
        visited = {collection.key for collection in collections}
        waiting = list(visited)
        while waiting:
            key = waiting.pop()
            if key in movable and owners[key] == index:
                graph[key] = nodes[key]
                waiting.extend(needs[key] - visited)
                visited |= needs[key]
            else:
                source = next((collection for collection in collections if key in collection.dask), collections[0])
                inputs.append(type(source)(key, source.dask, layer=source.__dask_layers__()[0]))
        return PartitionTasks(tuple(collection.key for collection in collections), graph, tuple(one.key for one in inputs)), inputs

    return [fused(index, collections) for index, collections in enumerate(partitions)]


def computed(stored: Any) -> Any:
    """A partition as the reader takes it: tasks of Dask are carried out in this thread; tuples are looked into."""
    if not isinstance(stored, tuple):
        return stored
    if stored and isinstance(stored[0], PartitionTasks):
        tasks, inputs = stored
        if any(hasattr(entry, "__dask_graph__") for entry in inputs):
            # Together: by itself, each would compute what they share anew, such as the folder of a shuffle through files.
            inputs = importlib.import_module("dask").compute(*inputs, scheduler="synchronous")
        return tasks(*inputs)
    return tuple(computed(entry) for entry in stored)
