"""How many lines and files there may be. Whoever needs more raises a number here, and says in the commit what the lines are worth."""

from collections import Counter

from repository import ROOT

# Of lethe/, in lines; in all they are fewer than the sum.
BUDGET = {
    "accounting": 2_450,
    "audit": 3_070,
    "calculus": 5_690,
    "certificates": 2_540,
    "cli": 1_410,
    "documents": 670,
    "errors": 380,
    "estimators": 8_700,
    "features": 50,
    "heavy_tailed": 3_540,
    "influence": 800,
    "integrations": 3_440,
    "jobs": 2_480,
    "ledger": 2_130,
    "mechanisms": 3_000,
    "noise_allocation": 2_200,
    "partitions": 1_360,
    "report": 2_600,
    "run": 4_310,
    "studio": 1_230,
    "theorems": 7_420,
    "train": 14_120,
    "utility": 240,
}
LINES, FILES, TESTS = 73_400, 468, 63_000


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
