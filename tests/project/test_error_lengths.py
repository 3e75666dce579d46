"""Errors are at most three lines of 140 letters as they are printed: what was got and needed, where, and what to do."""

import ast
import math
import re

from repository import ROOT

from lethe import errors

WIDTH, MOST, FILLED = 140, 3, "x" * 10
RAISED = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.LetheError)}


def longest(node: ast.expr) -> str:
    """A text as it is printed, with ten letters for what is filled in; of two, the longer one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(longest(part) if isinstance(part, ast.Constant) else FILLED for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return longest(node.left) + longest(node.right)
    if isinstance(node, ast.IfExp):
        return max(longest(node.body), longest(node.orelse), key=len)
    return FILLED


def printed(call: ast.Call) -> int:
    """How many lines of a terminal the error takes."""
    given = {keyword.arg: longest(keyword.value) for keyword in call.keywords if keyword.arg in ("source", "remedy")}
    whole = str(errors.LetheError(longest(call.args[0]), **given))
    return sum(math.ceil(len(line) / WIDTH) for line in whole.splitlines())


def raised() -> list[tuple[str, ast.Call]]:
    found = list[tuple[str, ast.Call]]()
    for path in sorted((ROOT / "lethe").rglob("*.py")):
        file = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and getattr(node.func, "id", "") in RAISED:
                found.append((f"{file}:{node.lineno}", node))
    return found


def test_errors_are_printed_in_three_lines() -> None:
    calls = raised()
    assert len(calls) > 900
    assert [place for place, call in calls if printed(call) > MOST] == []


def test_a_longer_one_is_found() -> None:
    for text, lines in (("f'{got}: " + "a" * 100 + "'", 1), ("'" + "a " * 71 + "', remedy=f'" + "b" * 139 + "{c}'", 4)):
        call = ast.parse(f"InputError({text})", mode="eval").body
        assert isinstance(call, ast.Call)
        assert printed(call) == lines


def test_no_error_speaks_of_what_its_reader_never_named() -> None:
    """Words of the code's insides, which somebody who uses `fit` or an engine cannot look up."""
    inner = re.compile(r"clipper\.recording|NetworkNoise\b.*\bfit\b.*recorder|one's own")
    assert [place for place, call in raised() if inner.search(ast.unparse(call))] == []
