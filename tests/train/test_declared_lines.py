"""What the certificates of typical trainings declare: what applies to that training, and no more, in short lines."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from doors import arguments, fit_head, fit_linear  # noqa: E402
from private_loops import Loop  # noqa: E402
from torch import nn  # noqa: E402

import lethe  # noqa: E402
from lethe.train import Callback, fit  # noqa: E402
from lethe.train.data.map_style import MapStyleSource  # noqa: E402

N, DELTA, MOST_WORDS = 24, 1e-3, 15
FEATURES = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
CLASSES = (FEATURES[:, 0] > 0).astype(np.int64)
USERS = np.arange(N) // 2
NETWORK = {"start", "model", "memory", "loss", "constants"}
LINEAR = lethe.losses.Softmax(feature_norm=1.0)


class Private(Callback):
    private = True


def run_of(**changes: Any) -> lethe.Run:
    fields: dict[str, Any] = {
        "records": N,
        "batches": lethe.batches.Poisson(6),
        "steps": 2,
        "step_size": 0.1,
        "clip_norm": 1.0,
        "noise_multiplier": 5.0,
        "release": "all",
    }
    return lethe.Run(**{**fields, **changes})


def last_run(**changes: Any) -> lethe.Run:
    return run_of(**{"batches": lethe.batches.Cyclic(6), "steps": 20, "release": "last", "clip_norm": None, "loss": LINEAR, **changes})


def fitted(run: lethe.Run | None = None, data: Any = (FEATURES, CLASSES), adam: bool = False, **options: Any) -> Any:
    model = nn.Linear(3, 2)
    own = {"optimizer": torch.optim.AdamW(model.parameters())} if adam else {}
    return fit(model, nn.CrossEntropyLoss(reduction="none"), data, run or run_of(), **own, **arguments(options))


def looped(**options: Any) -> Any:
    run = run_of(batches=lethe.batches.Poisson(6), **({"unit": "user", "records": N // 2} if "users" in options else {}))
    fresh = {"batch_generator": None, "noise_generator": None}
    model = nn.Linear(3, 2)
    loop = Loop(run, model=model, data=(FEATURES, CLASSES), **fresh, **options)
    loop.whole()
    return loop.engine.record()


def head(**options: Any) -> Any:
    backbone = nn.Sequential(nn.Linear(3, 4), nn.Tanh()).requires_grad_(False)
    return fit_head(backbone, nn.Linear(4, 2, bias=False), (FEATURES, CLASSES), last_run(), **options)


def by_item(**options: Any) -> Any:
    return fitted(data=MapStyleSource(list(zip(torch.tensor(FEATURES), torch.tensor(CLASSES), strict=True))), **options)


TRAININGS: dict[str, tuple[Callable[[Path], Any], set[str]]] = {
    "fit": (lambda _: fitted(), {"secrecy", *NETWORK}),
    "public callback": (lambda _: fitted(callbacks=Callback()), {"secrecy", *NETWORK}),
    "private callback": (lambda _: fitted(callbacks=Private()), {"secrecy", "callbacks", *NETWORK}),
    "fit with Adam": (lambda _: fitted(adam=True), {"secrecy", "optimiser", "learning rate", *NETWORK}),
    "fit with checkpoints": (lambda path: fitted(checkpoints=path / "kept"), {"secrecy", *NETWORK}),
    "fit, unchecked": (lambda _: fitted(isolation="declared"), {"secrecy", "checks", *NETWORK}),
    "fit, enforced": (lambda _: fitted(isolation="enforced"), {"secrecy", "start", "memory"}),
    "fit by item, enforced": (lambda _: by_item(isolation="enforced"), {"secrecy", "start", "memory", "padding", "data"}),
    "fit by item": (lambda _: by_item(), {"secrecy", "data", *NETWORK}),
    "fit, cyclic": (lambda _: fitted(run_of(batches=lethe.batches.Cyclic(6))), NETWORK),
    "fit, last release": (lambda _: fitted(run_of(batches=lethe.batches.Cyclic(6), release="last")), NETWORK),
    "users": (
        lambda _: fitted(run_of(unit="user", records=N // 2), users=USERS),
        {"secrecy", "users", "user of a record", "list of ids", *NETWORK},
    ),
    "loop": (lambda _: looped(), {"secrecy", "loop", "replay", "optimiser", "learning rate", *NETWORK}),
    "loop of users": (
        lambda _: looped(users=USERS),
        {"secrecy", "loop", "replay", "order", "optimiser", "learning rate", "users", "user of a record", "list of ids", *NETWORK},
    ),
    "linear model": (lambda _: fit_linear(last_run(), FEATURES, CLASSES, classes=2), {"release"}),
    "linear model, private callback": (
        lambda _: fit_linear(last_run(), FEATURES, CLASSES, classes=2, callbacks=Private()),
        {"release", "callbacks"},
    ),
    "head": (lambda _: head(), {"release", "public backbone", "records apart", "memory", "start"}),
}


@pytest.mark.parametrize("name", TRAININGS)
def test_declared_are_the_lines_that_apply_each_in_few_words(name: str, tmp_path: Path) -> None:
    train, expected = TRAININGS[name]
    certificate = lethe.certify(train(tmp_path), DELTA)
    declared = [finding for finding in certificate.findings if finding.evidence == "declared"]
    assert {finding.name for finding in declared} == expected
    assert {finding.words: len(finding.words.split()) for finding in declared if len(finding.words.split()) > MOST_WORDS} == {}
    assert len({finding.words for finding in declared}) == len(declared)
