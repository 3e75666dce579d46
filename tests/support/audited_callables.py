"""A function to audit whose privacy is known, in a module of its own, and the configuration that names it.

The sum of a feature in [0, 1] with Laplace noise of scale 1/4 is 4-DP when one record is replaced, and no less: the blank canary, whose
feature is 0, is in the place of a 1. The other feature of a record is its place. So is every feature with a noise of its own.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from lethe.documents.strict import write_document

EPSILON = 4.0
ABOUT = {"neighbours": "replace_one", "release": "last"}
MODULE = """
import os

import numpy as np

TRAININGS = 0


def train(data, seed):
    global TRAININGS
    TRAININGS += 1
    if str(TRAININGS) == os.environ.get("STOP_AT"):
        raise KeyboardInterrupt
    return float(np.clip(data[0][:, 0], 0, 1).sum()) + np.random.default_rng(seed).laplace(scale=0.25)


def score(model, record):
    return model * float(record[0][0])


def train_rows(data, seed):
    return np.clip(data[0][:, 0], 0, 1) + np.random.default_rng(seed).laplace(scale=0.25, size=len(data[0]))


def score_row(model, record):
    value, place = record[0]
    return model[int(place)] * value


def spoiling(data, seed):
    model = train(data, seed)
    data[0][:] = 0.0
    return model


def raising(data, seed):
    return {}["gone"]


def wordy(model, record):
    return "much"


NUMBER = 3
"""


def place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make it the current folder, with a module `mechanism` and the records it is about."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "mechanism", ModuleType("mechanism"))  # so that what is imported is forgotten after the test
    monkeypatch.delitem(sys.modules, "mechanism")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # of a file that changes within a second
    (folder / "mechanism.py").write_text(MODULE)
    features = np.column_stack([np.ones(50), np.arange(50)])
    np.savez(folder / "records.npz", x=features, y=np.arange(50) % 2)
    np.savez(folder / "bare.npz", x=features)
    return folder


def described(**changes: Any) -> dict[str, Any]:
    """A valid configuration; changes of its subject have names that begin with `subject_`."""
    subject = {
        "kind": "callable",
        "train": "mechanism:train",
        "score": "mechanism:score",
        "data": {"path": "records.npz"},
        "claim": {"epsilon": EPSILON, "delta": 0.0, **ABOUT},
    }
    subject |= {key.removeprefix("subject_"): value for key, value in changes.items() if key.startswith("subject_")}
    rest = {key: value for key, value in changes.items() if not key.startswith("subject_")}
    return {"subject": subject, "canary": "blank", "runs": 100, **rest}


def written(folder: Path, **changes: Any) -> Path:
    """The file of that configuration."""
    write_document(folder / "audit.yaml", described(**changes))
    return folder / "audit.yaml"
