"""Processes forked from one that has loaded the library: each starts in milliseconds, where a new interpreter imports for seconds."""

import multiprocessing
from multiprocessing.context import ForkServerContext

# An optimiser's first step imports torch._dynamo, and the tests' own functions import pytest.
LOADED = ["lethe", "lethe.train", "lethe.estimators", "torch._dynamo", "torch.distributed", "sklearn.linear_model", "pytest"]


def forking() -> ForkServerContext:
    """The start method. The server starts with its first process, has one thread, draws no number and lasts as long as the tests."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    return context
