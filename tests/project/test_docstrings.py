"""Every function of a public name with three parameters or more says in Args what each is; others say which shapes their arrays have.

Public is what stands in an `__all__`, with its methods and those of its bases. That docstrings exist at all is ruff's to check (D1).
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest
from repository import ROOT

FEWEST_PARAMETERS = 3
ARRAYS = re.compile(r"(torch\.)?(Array|FloatArray|Floats|Integers|Tensor)( \| None)?")
SHAPES = re.compile(r"\bshapes?\b|\bscalar\b|\bnumbers?\b|\bas `")


@cache
def verbs() -> frozenset[str]:
    """The functions of other files that the command line makes verbs of."""
    return frozenset(re.findall(r"app\.command\(\)\((\w+)\)", (ROOT / "lethe/cli/app.py").read_text()))


@cache
def docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return ast.get_docstring(node) or ""


class Function(NamedTuple):
    file: str
    owner: ast.ClassDef | None
    node: ast.FunctionDef | ast.AsyncFunctionDef

    def __str__(self) -> str:
        return f"{self.file}: {'' if self.owner is None else self.owner.name + '.'}{self.node.name}"

    @property
    def doc(self) -> str:
        return docstring(self.node)

    @property
    def parameters(self) -> list[ast.arg]:
        known = [*self.node.args.posonlyargs, *self.node.args.args, *self.node.args.kwonlyargs]
        return known if self.owner is None or "staticmethod" in self.decorators else known[1:]

    @property
    def decorators(self) -> list[str]:
        return [ast.unparse(decorator).partition("(")[0] for decorator in self.node.decorator_list]

    @property
    def exempt(self) -> bool:
        """Typer's verbs, whose help texts say it; autograd's own signature; the variants of an overloaded function."""
        verb = self.file.startswith("lethe/cli/") and ("app.command" in self.decorators or self.node.name in verbs())
        autograd = (
            self.owner is not None and self.node.name == "forward" and "torch.autograd.Function" in map(ast.unparse, self.owner.bases)
        )
        return verb or autograd or "overload" in self.decorators


def public(file: str, body: list[ast.stmt], owner: ast.ClassDef | None = None) -> Iterator[Function]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public(file, node.body, node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield Function(file, owner, node)


def modules() -> dict[str, ast.Module]:
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in sorted(ROOT.glob("lethe/**/*.py"))}


def entries(doc: str) -> dict[str, str]:
    """What the Args section says of each parameter."""
    section = re.search(r"^Args:\n((?: .*\n?|\n(?= ))*)", doc, flags=re.M)
    found = re.findall(r"^    (\w+(?:, \w+)*): (.*(?:\n     .*)*)", section[1] if section else "", flags=re.M)
    return {name: text for names, text in found for name in names.split(", ")}


def public_names(trees: dict[str, ast.Module]) -> frozenset[str]:
    """The names of all `__all__`, and the bases of the classes among them."""
    bases = {
        node.name: [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    lists = [
        node.value
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    found, waiting = set[str](), [name.value for one in lists for name in ast.walk(one) if isinstance(name, ast.Constant)]
    while waiting:
        if (name := str(waiting.pop())) not in found:
            found.add(name)
            waiting += bases.get(name, [])
    return frozenset(found)


def shapeless(function: Function) -> str | None:
    """Which array of a function that is not public has no shape anywhere in its docstring."""
    arrays = [one.arg for one in function.parameters if one.annotation is not None and ARRAYS.fullmatch(ast.unparse(one.annotation))]
    return f"{arrays[0]} is an array, and no shape is said" if arrays and not SHAPES.search(function.doc) else None


def fault(function: Function, known: frozenset[str], methods: dict[tuple[str, str], Function]) -> str | None:
    """What is wrong with the docstring of a function that needs Args."""
    if base := re.match(r"See `(\w+)`", function.doc):
        inherited = methods.get((base[1], function.node.name))
        return fault(inherited, known, methods) if inherited is not None else f"{base[1]} has no such method"
    if other := re.search(r"^Args[^:\n]*: (?:as|those of) `([\w.]+)`", function.doc, flags=re.M):
        return None if other[1].rpartition(".")[2] in known else f"{other[1]} is unknown or has no Args"
    said = entries(function.doc)
    for parameter in function.parameters:
        if parameter.arg not in said:
            return f"{parameter.arg} is not in Args"
        is_array = parameter.annotation is not None and ARRAYS.fullmatch(ast.unparse(parameter.annotation))
        if is_array and not SHAPES.search(said[parameter.arg]):
            return f"{parameter.arg} is an array without a shape"
    return None


def faults(trees: dict[str, ast.Module]) -> list[str]:
    found = [one for file, tree in trees.items() for one in public(file, tree.body)]
    classes = [node for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)]
    known = {one.node.name for one in found if entries(one.doc)} | {one.name for one in classes if entries(ast.get_docstring(one) or "")}
    methods = {(one.owner.name, one.node.name): one for one in found if one.owner is not None}
    long = [one for one in found if len(one.parameters) >= FEWEST_PARAMETERS and not one.exempt]
    names = public_names(trees)

    def wrong(one: Function) -> str | None:
        is_public = (one.node.name if one.owner is None else one.owner.name) in names
        full = fault(one, frozenset(known), methods)
        return full if is_public or full is None else shapeless(one)

    return [f"{one}: {what}" for one in long if (what := wrong(one)) is not None]


@pytest.mark.slow
def test_long_functions_say_what_they_take() -> None:
    assert faults(modules()) == []


def test_a_missing_word_is_found() -> None:
    def of(args: str, base: str = "object") -> list[str]:
        source = f'__all__ = ["Base"]\nclass Base({base}):\n    def forward(self, a: int, b: Tensor, c: int) -> None:\n'
        source += f'        """Say.\n\n{args}\n        """\n'
        return faults({"lethe/any.py": ast.parse(source)})

    where = "lethe/any.py: Base.forward: "
    good = "        Args:\n            a, c: counts.\n            b: weights,\n                shape (n,)."
    assert of(good) == []
    assert of(good.replace("shape (n,)", "of all")) == [where + "b is an array without a shape"]
    assert of(good.replace("a, c", "a")) == [where + "c is not in Args"]
    assert of("") == [where + "a is not in Args"]
    assert of("", "torch.autograd.Function") == []
    assert of("        Args: as `nobody`.") == [where + "nobody is unknown or has no Args"]
    hidden = 'def inner(a: int, b: Tensor, c: int) -> None:\n    """Say{}."""\n'
    assert faults({"lethe/any.py": ast.parse(hidden.format(""))}) == ["lethe/any.py: inner: b is an array, and no shape is said"]
    assert faults({"lethe/any.py": ast.parse(hidden.format(" of shape (n,)"))}) == []
