"""The examples in docstrings run, and the names that people use most have one."""

import doctest
import importlib
import inspect
from collections.abc import Iterator

import pytest

import lethe

MODULES = (
    "batches",
    "losses",
    "regularisers",
    "schedules",
    "noise",
    "guarantees",
    "train",
    "estimators",
    "heavy_tailed",
    "ledger",
    "utility",
)


def examples() -> Iterator[doctest.DocTest]:
    finder = doctest.DocTestFinder(recurse=False, exclude_empty=True)
    for module in (lethe, *(importlib.import_module(f"lethe.{name}") for name in MODULES)):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield from finder.find(inspect.unwrap(value), f"{module.__name__}.{name}", globs={"lethe": lethe})


EXAMPLES = {test.name: test for test in examples() if test.examples}


def test_fifty_names_have_an_example() -> None:
    assert len(EXAMPLES) >= 50


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str) -> None:
    report = list[str]()
    doctest.DocTestRunner().run(EXAMPLES[name], out=report.append)
    assert not report, "".join(report)
