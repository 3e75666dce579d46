"""How many lines and files there may be. Whoever needs more raises a number here, and says in the commit what the lines are worth."""

from collections import Counter

from repository import ROOT

# Of lethe/, in lines; in all they are fewer than the sum.
BUDGET = {
    "accounting": 2_450,
    "audit": 3_054,
    "calculus": 5_732,
    "certificates": 2_590,
    "cli": 1_528,
    "documents": 672,
    "errors": 364,
    "estimators": 8_714,
    "features": 62,
    "heavy_tailed": 3_950,
    "influence": 820,
    "integrations": 3_652,
    "jobs": 2_586,
    "ledger": 2_186,
    "mechanisms": 3_002,
    "noise_allocation": 2_384,
    "partitions": 1_356,
    "report": 2_590,
    "run": 4_320,
    "studio": 1_376,
    "theorems": 7_496,
    "train": 14_200,
    "utility": 214,
}
LINES, FILES, TESTS = 74_400, 480, 63_200


def lines_of(folder: str) -> Counter[str]:
    """Lines of Python by the first part of the path within the folder."""
    found: Counter[str] = Counter()
    for path in (ROOT / folder).rglob("*.py"):
        found[path.relative_to(ROOT / folder).parts[0]] += path.read_text().count("\n")
    return found


def test_no_package_is_above_its_budget() -> None:
    found = {package: lines for package, lines in lines_of("lethe").items() if not package.endswith(".py")}
    assert found.keys() == BUDGET.keys()
    assert {package: lines for package, lines in found.items() if lines > BUDGET[package]} == {}


def test_the_whole_is_within_its_budget() -> None:
    assert sum(lines_of("lethe").values()) <= LINES
    assert len(list((ROOT / "lethe").rglob("*.py"))) <= FILES
    assert sum(lines_of("tests").values()) <= TESTS
