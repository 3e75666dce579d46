"""The ten commonest mistakes of somebody new: each is answered by what to write, and that, typed as it stands, works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import lethe
from lethe.errors import LetheError
from lethe.train import PrivacyEngine, TrainOptions, fit, fix_batch_norm

DATA = torch.randn(64, 4, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 3
WORDS = {"epsilon": 3.0, "delta": 1e-3, "epochs": 1, "batch_size": 16}


def network(*, batch_norm: bool = False) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), *([nn.BatchNorm1d(8)] if batch_norm else []), nn.Tanh(), nn.Linear(8, 3))


class Loop:
    """A loop of one's own with its names, in which a line may be another one."""

    def __init__(self, losses: Any = None) -> None:
        self.model = network()
        self.criterion = nn.CrossEntropyLoss(reduction="none")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        losses = losses or (lambda batch: self.criterion(self.model(batch[0]), batch[1]))
        self.engine = PrivacyEngine(self.model, self.optimizer, losses, DATA, **WORDS)

    def run(self, body: str = "engine.backward(batch)\noptimizer.step()\noptimizer.zero_grad()", epochs: str = "engine.epochs()") -> None:
        lines = "\n".join(f"        {line}" for line in body.splitlines())
        code = f"for epoch in {epochs}:\n    for batch in engine.batches():\n{lines}"
        exec(code, {"engine": self.engine, "optimizer": self.optimizer, "model": self.model, "criterion": self.criterion})


class Mistake(NamedTuple):
    """What somebody writes, a line of the answer, and what is written then.

    Args:
        made: raises.
        remedy: stands in the error.
        mended: is run with the remedy in it, as it stands.
    """

    made: Callable[[], Any]
    remedy: str
    mended: Callable[[str], Any]


def trained(model: nn.Module | None = None, data: Any = DATA, loss: Any = None, **others: Any) -> Any:
    return fit(network() if model is None else model, nn.CrossEntropyLoss() if loss is None else loss, data, **{**WORDS, **others})


def value(code: str, **names: Any) -> Any:
    """What an expression gives."""
    return eval(code, {"torch": torch, "nn": nn, "lethe": lethe, "fix_batch_norm": fix_batch_norm, "TrainOptions": TrainOptions, **names})


MISTAKES: dict[str, Mistake] = {
    "batch normalisation": Mistake(
        lambda: trained(network(batch_norm=True)),
        "fix_batch_norm(model)",
        lambda remedy: trained(value(remedy, model=network(batch_norm=True))),
    ),
    "the class of a loss": Mistake(
        lambda: trained(loss=nn.CrossEntropyLoss),
        'CrossEntropyLoss(reduction="none")',
        lambda remedy: trained(loss=value(f"nn.{remedy}")),
    ),
    "float64 features": Mistake(
        lambda: trained(data=(DATA[0].double().numpy(), DATA[1].numpy())),
        "features.astype(numpy.float32)",
        lambda remedy: trained(data=(eval(remedy, {"features": DATA[0].double().numpy(), "numpy": __import__("numpy")}), DATA[1].numpy())),
    ),
    "classes as floats": Mistake(
        lambda: trained(data=(DATA[0], DATA[1].float())),
        "targets.long()",
        lambda remedy: trained(data=(DATA[0], value(remedy, targets=DATA[1].float()))),
    ),
    "a model in half precision": Mistake(
        lambda: trained(network().half()), "model.float()", lambda remedy: trained(value(remedy, model=network().half()))
    ),
    "no batch size": Mistake(
        lambda: fit(network(), nn.CrossEntropyLoss(), DATA, epsilon=3.0, delta=1e-5, epochs=10),
        "fit(model, loss, data, epsilon=3.0, delta=1e-5, epochs=10, batch_size=256)",
        lambda remedy: value(remedy, fit=fit, model=network(), loss=nn.CrossEntropyLoss(), data=DATA),
    ),
    "an option beside the words": Mistake(
        lambda: trained(physical_size=8),  # as of older versions
        "options=TrainOptions(physical_size=",
        lambda remedy: trained(**value(f"dict({remedy}8))")),
    ),
    "a mean over the batch in a loop": Mistake(
        lambda: (loop := Loop(lambda batch: nn.functional.cross_entropy(loop.model(batch[0]), batch[1]))).run(),
        'reduction="none"',
        lambda remedy: (loop := Loop(lambda batch: value(f"nn.CrossEntropyLoss({remedy})")(loop.model(batch[0]), batch[1]))).run(),
    ),
    "loss.backward() as before": Mistake(
        lambda: Loop().run("criterion(model(batch[0]), batch[1]).mean().backward()\noptimizer.step()"),
        "engine.backward(batch)",
        lambda remedy: Loop().run(f"{remedy}\noptimizer.step()\noptimizer.zero_grad()"),
    ),
    "epochs that are counted by hand": Mistake(
        lambda: Loop().run(epochs="range(3)"),
        "for epoch in engine.epochs()",
        lambda remedy: Loop().run(epochs=remedy.removeprefix("for epoch in ")),
    ),
    "an old name": Mistake(
        lambda: lethe.Poisson(256),  # pyright: ignore[reportAttributeAccessIssue]
        "lethe.batches.Poisson",
        lambda remedy: value(f"{remedy}(256)"),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_by_what_works(name: str) -> None:
    mistake = MISTAKES[name]
    with pytest.raises((LetheError, TypeError)) as refused:
        mistake.made()
    text = str(refused.value)
    assert mistake.remedy in text
    assert len(text.splitlines()) <= 3
    mistake.mended(mistake.remedy)
