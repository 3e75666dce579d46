"""Nobody asks what a design is called."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from repository import ROOT

from lethe.run.participation import Participation

ROOT = ROOT / "lethe"


def _branches() -> Iterator[tuple[str, int, str]]:
    """Each comparison with, or look-up by, the name of a design, and each question of its class."""
    by_name, by_key = r"\bdesign (==|!=|in \(|not in )", r"(\[|\.get\()[\w.]*batches\.design"
    by_class = r"isinstance\([^()]*\bbatches\b,|type\([^()]*\bbatches\) (==|is)"
    asked = re.compile("|".join((by_name, by_key, by_class)))
    for path in sorted(ROOT.rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if asked.search(line):
                yield str(path.relative_to(ROOT)), number, line.strip()


@pytest.mark.slow
def test_nobody_branches_on_the_name_of_a_design() -> None:
    """Guarantees of the calculus have a design of their own, a word of two that `require_design` has checked."""
    found = [
        f"{path}:{number}: {line}" for path, number, line in _branches() if not path.startswith(("calculus/", "integrations/dp_accounting"))
    ]
    assert found == []


def test_whoever_asks_for_a_participation_knows_all_of_them() -> None:
    """Every `match` on one names them all, and a refusal follows it."""
    asked = 0
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text()
        if "participation:" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Match) and ast.unparse(node.subject).endswith("participation"):
                cases = " ".join(ast.unparse(case.pattern) for case in node.cases)
                assert {one for one in Participation if f"Participation.{one.name}" in cases} == set(Participation), f"{path}:{node.lineno}"
                asked += 1
    assert asked >= 8
