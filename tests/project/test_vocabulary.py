"""The words of names and pages: nouns of the field, and no more of them than a reader takes in."""

import ast

from repository import ROOT

# Words that name nothing: the field has a noun for each thing they stand for.
VAGUE = frozenset(
    [
        "told",
        "asked",
        "given",
        "found",
        "made",
        "said",
        "known",
        "own",
        "kept",
        "seen",
        "alone",
        "beside",
        "others",
        "left",
        "taken",
        "held",
        "shown",
        "wanted",
        "few",
        "some",
        "one",
        "other",
        "here",
        "there",
        "anew",
        "again",
        "least",
        "most",
        "drew",
        "mine",
        "place",
        "places",
    ]
)


def bound_names(tree: ast.AST) -> list[str]:
    """Names of variables, parameters, functions and classes that a file binds."""
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    names += [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
    return names + [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]


def test_at_most_one_name_in_a_hundred_is_vague() -> None:
    names = [name for path in (ROOT / "lethe").rglob("*.py") for name in bound_names(ast.parse(path.read_text()))]
    vague = [name for name in names if name.strip("_").lower() in VAGUE]
    assert len(vague) <= 0.01 * len(names), sorted(set(vague))


def test_the_site_is_no_longer_than_a_reader_takes_in() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert sum(len(page.read_text().split()) for page in pages) <= 55_000
