"""A small table of homes, and a configuration that trains on it."""

from pathlib import Path
from typing import Any

import numpy as np

HOMES: dict[str, Any] = {"size": {"range": [0, 100]}, "word": {"categories": ["u", "v"]}}


def homes_table(tmp_path: Path, rows: int = 300) -> Path:
    """Size, a word, a price that follows from both, and whether it is dear."""
    random = np.random.default_rng(0)
    size, word = random.uniform(0, 100, rows), random.choice(["u", "v"], rows)
    price = size / 100 + (word == "v") + random.normal(0, 0.1, rows)
    kind = np.where(price > 1, "dear", "cheap")
    lines = [f"{a:.3f},{b},{c:.4f},{d}" for a, b, c, d in zip(size, word, price, kind, strict=True)]
    (tmp_path / "homes.csv").write_text("size,word,price,kind\n" + "\n".join(lines) + "\n")
    return tmp_path / "homes.csv"


def homes_column(tmp_path: Path, name: str) -> list[str]:
    """The entries of one column."""
    header, *lines = (tmp_path / "homes.csv").read_text().splitlines()
    return [line.split(",")[header.split(",").index(name)] for line in lines]


def homes_fields(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """A configuration of `lethe train`, with changes."""
    return {
        "data": {"path": str(homes_table(tmp_path)), "target": "kind", "classes": ["cheap", "dear"]},
        "columns": {**HOMES, "price": "drop"},
        "model": {"estimator": "logistic_regression", "feature_norm": 1.5},
        "privacy": {"epsilon": 5.0, "delta": 1e-5},
        **changes,
    }
