"""Bok, Su, Altschuler 2024 (arXiv:2403.00278): the cyclic and full-batch rows of Tables 1, 3, 4, 7 and Figure 1, by `certify`."""

import csv
from importlib import resources

import pytest

import lethe

_TABLES = resources.files("lethe_experiments") / "data" / "bok2024_tables.csv"
_METHODS = ("GDP composition", "Bok GDP", "Bok GDP (exact)")  # tests/laws/experiments/test_reproduce.py has the other rows
ROWS = [row for row in csv.DictReader(_TABLES.read_text().splitlines()) if row["method"] in _METHODS]


def _run(row: dict[str, str]) -> lethe.Run:
    """A run whose step contracts by c and whose touch is s/tau of the row: strongly convex losses with step 1, smoothness 1."""
    contraction = float(row["c"]) if row["c"] else 1.0
    ratio = 2 / 3 if "2/3" in row["unit_sens"] else 0.1
    loss = (
        {"kind": "strongly_convex", "strong_convexity": 1 - contraction, "smoothness": 1.0, "gradient_bound": 1.0}
        if contraction < 1
        else {"kind": "convex", "smoothness": 1.0, "gradient_bound": 1.0}
    )
    cyclic = row["algorithm"] == "NoisyCGD"
    slots = int(row["l"]) if cyclic else 1
    return lethe.Run(
        records=10 * slots,
        batches=lethe.batches.Cyclic(10) if cyclic else lethe.batches.Full(),
        passes=int(row["E"]) if cyclic else int(row["t"]),
        step_size=1.0,
        noise_multiplier=2 / ratio,  # replace one: s / tau = 2 / z
        loss=loss,
        release="all" if row["method"] == "GDP composition" else "last",
        neighbours="replace_one",
    )


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['paper_item']}-{row['c']}-{row['t']}-{row['method']}" for row in ROWS])
def test_row(row: dict[str, str]) -> None:
    certificate = lethe.certify(_run(row), delta=1e-5)
    assert certificate.theorem == ("composition" if row["method"] == "GDP composition" else "optimal-shift")
    assert isinstance(certificate.guarantee, lethe.guarantees.GDP)
    assert certificate.guarantee.mu == pytest.approx(float(row["mu"]), rel=5e-6)  # six digits are printed
    if row["epsilon"]:
        assert certificate.epsilon == pytest.approx(float(row["epsilon"]), rel=5e-6)
