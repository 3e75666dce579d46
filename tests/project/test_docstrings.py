"""Every public function with three parameters or more says in Args what each is, and of an array which shape it has.

Public is what stands in an `__all__`, with its methods and those of its bases. That docstrings exist at all is ruff's to check (D1).
"""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from repository import ROOT

import lethe

FEWEST_PARAMETERS = 3
ARRAYS = re.compile(r"(torch\.)?(Array|FloatArray|Floats|Integers|Tensor)( \| None)?")
SHAPES = re.compile(r"\bshapes?\b|\bscalar\b|\bnumbers?\b|\bas `")


def public(module: Any) -> Iterator[Callable[..., Any]]:
    for value in (getattr(module, name) for name in module.__all__):
        if not inspect.isclass(value):
            yield from [value] if inspect.isfunction(value) else []
            continue
        for kind in value.__mro__:
            if kind.__module__.startswith("lethe"):
                yield from methods(kind)


def methods(kind: type) -> Iterator[Callable[..., Any]]:
    for name, value in vars(kind).items():
        function = getattr(value, "__func__", value)  # of a class method
        autograd = name == "forward" and issubclass(kind, torch.autograd.Function)
        if inspect.isfunction(function) and not name.startswith("_") and not autograd:
            bases = [base for base in kind.__mro__[1:] if base.__module__.startswith("lethe")]
            overridden = [vars(base)[name] for base in bases if inspect.isfunction(vars(base).get(name))]
            yield overridden[-1] if overridden and "Args:" not in (function.__doc__ or "") else function


def entries(doc: str) -> dict[str, str]:
    """What the Args section says of each parameter."""
    section = re.search(r"^Args:\n((?: .*\n?|\n(?= ))*)", doc, flags=re.M)
    found = re.findall(r"^    (\w+(?:, \w+)*): (.*(?:\n     .*)*)", section[1] if section else "", flags=re.M)
    return {name: text for names, text in found for name in names.split(", ")}


def fault(function: Callable[..., Any]) -> str | None:
    """What is wrong with the docstring of a function."""
    function, doc = inspect.unwrap(function), inspect.getdoc(function) or ""
    every = inspect.signature(function).parameters.values()
    known = [one for one in every if one.name not in ("self", "cls") and one.kind < one.VAR_KEYWORD]
    if len(known) < FEWEST_PARAMETERS or re.search(r"^Args[^:\n]*: (?:as|those of) `", doc, flags=re.M):
        return None
    said = entries(doc)
    for one in known:
        if one.name not in said:
            return f"{one.name} is not in Args"
        if ARRAYS.fullmatch(str(one.annotation)) and not SHAPES.search(said[one.name]):
            return f"{one.name} is an array without a shape"
    return None


def test_long_functions_say_what_they_take() -> None:
    names = [name for _, name, is_package in pkgutil.walk_packages(lethe.__path__, "lethe.") if is_package]
    modules = [module for module in map(importlib.import_module, ["lethe", *names]) if hasattr(module, "__all__")]
    found = {f"{one.__module__}.{one.__qualname__}": one for module in modules for one in public(module)}
    assert len(found) > 200
    assert {name: what for name, one in found.items() if (what := fault(one)) is not None} == {}


def test_no_docstring_only_points_elsewhere() -> None:
    trees = {path: ast.parse(path.read_text()) for path in (ROOT / "lethe").rglob("*.py")}
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    pointers = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, kinds) and (ast.get_docstring(node) or "").startswith("See ")
    ]
    assert pointers == []
