"""The Python of the guides runs, from top to bottom of each page, on small data in place of what a reader has."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from repository import ROOT

import lethe

DOCS = ROOT / "docs"
Names = dict[str, Any]
# These pages have tests of their own, which look at what the examples print.
TESTED_ELSEWHERE = {"certify", "estimators", "influence", "interop", "private_search", "regression", "schedules", "solvers", "utility"}


def blocks(page: str) -> list[str]:
    """The code that no build of the site runs."""
    return re.findall(r"^```python\n(.*?)^```", (DOCS / f"{page}.md").read_text(), flags=re.S | re.M)


def _compare() -> Names:
    pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    loss = lethe.losses.Softmax(feature_norm=1.0)
    batches = lethe.batches.Cyclic(100)
    return {
        "lethe": lethe,
        "run": lethe.Run(
            records=1000,
            batches=batches,
            passes=5,
            step_size=0.5,
            noise_multiplier=10.0,
            loss=loss,
            release="last",
            neighbours="replace_one",
        ),
    }


def _train() -> Names:
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(0)
    images, labels = torch.tensor(generator.normal(size=(1400, 64)), dtype=torch.float32), torch.arange(1400) % 10
    model = torch.nn.Linear(64, 10)
    return {
        "np": np,
        "X": images.double().numpy(),
        "y": labels.numpy(),
        "images": images,
        "labels": labels,
        "public_images": images[:100],
        "public_labels": labels[:100],
        "model": model,
        "backbone": torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU()),
        "optimizer": torch.optim.SGD(model.parameters(), lr=12.0),
        "criterion": torch.nn.CrossEntropyLoss(reduction="none"),
        "dataset": torch.utils.data.TensorDataset(images, labels),
    }


def _ledger() -> Names:
    pytest.importorskip("sqlalchemy")
    return {}


def _layer_rules() -> Names:
    pytest.importorskip("torch")
    return {}


def _audit() -> Names:
    from types import SimpleNamespace

    generator = np.random.default_rng(0)
    labels = np.arange(1000) % 2

    def train(candidates: Any, seed: int) -> Any:
        return generator.normal(size=(1, 500, 2))

    def learn(logits: Any, labels: Any, included: Any, seed: int) -> Any:
        return lambda logits, labels: generator.uniform(0.4, 0.6, size=(1, len(labels)))

    return vars(SimpleNamespace(labels=labels, train=train, learn=learn))


def _seals() -> Names:
    torch = pytest.importorskip("torch")
    import lethe.train

    data = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 2
    run = lethe.Run(
        records=60,
        batches=lethe.batches.Cyclic(20),
        passes=2,
        step_size=0.5,
        clip_norm=1.0,
        noise_multiplier=5.0,
        release="all",
        neighbours="replace_one",
    )
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    return {"lethe": lethe, "torch": torch, "model": torch.nn.Linear(4, 2), "loss": loss, "data": data, "run": run}


def _logging() -> Names:
    torch = pytest.importorskip("torch")
    pytest.importorskip("tensorboard")
    pytest.importorskip("mlflow")
    from lethe.train import fit

    names = _seals()
    generator = torch.Generator().manual_seed(1)
    model, criterion = names["model"], names["loss"]
    public = torch.randn(20, 4, generator=generator), torch.arange(20) % 2
    return {
        "lethe": lethe,
        "torch": torch,
        "fit": fit,
        "run": names["run"],
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.5),
        "criterion": criterion,
        "dataset": torch.utils.data.TensorDataset(*names["data"]),
        "public_inputs": public[0],
        "public_targets": public[1],
        "tracking_uri": Path("mlruns").absolute().as_uri(),
    }


def _features() -> Names:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    return {}


PAGES: dict[str, tuple[Callable[[], Names], dict[str, str]]] = {
    "audit": (_audit, {"runs=500": "runs=50"}),
    "compare": (_compare, {}),
    "features": (_features, {"images=200": "images=40", "[:1500]": "[:300]", "[1500:]": "[1700:]"}),
    "layer_rules": (_layer_rules, {}),
    "ledger": (_ledger, {}),
    "logging": (_logging, {"steps % 10": "steps % 2"}),
    "seals": (_seals, {}),
    # As many records as there are, and few steps.
    "linear": (_train, {"records=60000": "records=1400", "Shuffled(1024)": "Shuffled(128)", "passes=20": "passes=2"}),
    "loop": (_train, {}),
    "train": (_train, {}),
}

# What they import is dear, and what they show is tested in tests/unit/integrations and tests/unit/ledger.
AT_NIGHT = {"ledger", "logging"}


def test_no_guide_is_left_out() -> None:
    assert {path.stem for path in DOCS.glob("*.md") if blocks(path.stem)} == {*PAGES, *TESTED_ELSEWHERE}


@pytest.mark.parametrize("page", [pytest.param(page, marks=pytest.mark.nightly if page in AT_NIGHT else []) for page in PAGES])
def test_the_examples_of_a_guide_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    prepared, smaller = PAGES[page]
    given = prepared()
    names: Names = {}
    for block in blocks(page):
        names |= given  # what a reader has, whatever the examples before called by the same names
        for long, short in smaller.items():
            block = block.replace(long, short)
        exec(compile(block, f"{page}.md", "exec"), names)
