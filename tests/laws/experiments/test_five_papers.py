"""The registry of the five papers: all that it names exists, and all of the papers that exists is in it."""

import ast
from importlib import import_module
from pkgutil import resolve_name

import pytest
from repository import ROOT

import lethe.theorems.registry
from lethe_experiments import REPRODUCTIONS
from lethe_experiments.five_papers import NOT_BUILT, PAPERS, papers_items, papers_tables

ITEMS = papers_items()
NAMES = {name for item in ITEMS for name in item.names}
_AUTHORS = ("hong", "kong", "liang", "lowy")


def _objects() -> list[object]:
    return [resolve_name(name) for name in sorted(NAMES)]


def test_every_name_is_something() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    assert None not in _objects()


def test_a_row_has_a_place_and_a_command_or_a_reason() -> None:
    assert {item.paper for item in ITEMS} == PAPERS.keys()
    for item in ITEMS:
        assert item.numbers, item
        assert 1 <= len(item.says.split()) <= 15, item
        assert len(item.corrected.split()) <= 20, item
        if not item.built:
            assert len(item.places.removeprefix(NOT_BUILT).split()) > 1, item
            assert item.run + item.seconds == "", item
        elif item.run.startswith("lethe "):
            assert item.names, item
            assert item.run.removeprefix("lethe reproduce ") in REPRODUCTIONS, item
        else:
            assert item.names, item
            assert (ROOT / item.run).is_file(), item
            assert float(item.seconds) > 0, item


def test_no_part_has_two_rows() -> None:
    parts = [(item.paper, item.numbers) for item in ITEMS]
    assert len(set(parts)) == len(parts)


def test_every_theorem_of_these_papers_has_a_row() -> None:
    pytest.importorskip("torch")
    objects = _objects()
    cited = [t for t in lethe.theorems.registry.ALL if any(citation.key.startswith(_AUTHORS) for citation in t.citations)]
    assert len(cited) > 15
    assert [theorem.name for theorem in cited if type(theorem) not in objects] == []


def test_every_reproduction_of_these_papers_has_a_row() -> None:
    ours = {name for name in REPRODUCTIONS if name.startswith(_AUTHORS)}
    assert len(ours) >= 5
    assert ours == {item.run.removeprefix("lethe reproduce ") for item in ITEMS if item.run.startswith("lethe ")}


@pytest.mark.parametrize("folder", ["lethe/heavy_tailed", "lethe/run", "lethe/utility", "lethe_experiments/risk"])
def test_whatever_cites_one_of_them_has_a_row(folder: str) -> None:
    """A function or class whose docstring refers to a paper of the five is named itself; of risk bounds its module has a name."""
    objects, cited = _objects(), 0
    modules = {getattr(thing, "__module__", None) for thing in objects} | {name.rpartition(".")[0] for name in NAMES}
    for path in sorted((ROOT / folder).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                _, reference, source = (ast.get_docstring(node) or "").partition("Reference:")
                if reference and any(author in source.lower() for author in _AUTHORS):
                    cited += 1
                    by_itself = folder.startswith("lethe/")
                    assert getattr(import_module(module), node.name) in objects if by_itself else module in modules, f"{module}.{node.name}"
    assert cited


def test_the_page_has_every_row() -> None:
    page = papers_tables()
    assert page.count("\n| ") == len(ITEMS) + len(PAPERS)
    assert all(f"## {title}" in page for title in PAPERS.values())
