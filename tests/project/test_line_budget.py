"""How many lines and files there may be. Whoever needs more raises a number here, and says in the commit what the lines are worth."""

from collections import Counter

from repository import ROOT

# Of lethe/, in lines; in all they are fewer than the sum.
BUDGET = {
    "accounting": 2_370,
    "audit": 3_000,
    "calculus": 5_650,
    "certificates": 2_550,
    "cli": 1_500,
    "documents": 650,
    "errors": 350,
    "estimators": 8_600,
    "features": 50,
    "heavy_tailed": 3_900,
    "influence": 800,
    "integrations": 3_600,
    "jobs": 2_550,
    "ledger": 2_150,
    "mechanisms": 2_950,
    "noise_allocation": 2_350,
    "partitions": 1_330,
    "report": 2_550,
    "run": 4_080,
    "studio": 1_350,
    "theorems": 7_400,
    "train": 13_900,
    "utility": 200,
}
LINES, FILES, TESTS = 72_400, 480, 62_800


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
