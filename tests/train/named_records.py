"""Networks whose arguments have names, their records as mappings, and `fit` of both kinds of records."""

from __future__ import annotations

from typing import Any

from doors import arguments
from networks import CROSS_ENTROPY, RECORDS, flat, make_data, make_network
from torch import Tensor, nn

from lethe.run.run import Run
from lethe.train import fit


class ByName(nn.Module):
    """The network, whose argument has a name."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make_network()

    def forward(self, features: Tensor) -> Tensor:
        return self.inner(features)


class WithLoss(ByName):
    """The network as those of transformers are: given labels, it computes a loss itself, the batch's mean or one a record."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, features: Tensor, label: Tensor | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        logits = self.inner(features)
        loss = None if label is None else nn.functional.cross_entropy(logits, label, reduction=self.reduction)
        return {"loss": loss, "logits": logits}


def by_name(data: tuple[Tensor, Tensor] | None = None) -> dict[str, Tensor]:
    features, label = make_data() if data is None else data
    return {"features": features, "label": label}


def own_loss(outputs: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """Takes the labels out, as many do."""
    return CROSS_ENTROPY(outputs, batch.pop("label"))


def listed() -> list[dict[str, Tensor]]:
    table = by_name()
    return [{name: column[place] for name, column in table.items()} for place in range(RECORDS)]


def of_tuples(run: Run, **options: Any) -> Tensor:
    return flat(fit(make_network(), CROSS_ENTROPY, make_data(), run, **arguments({"seed": 5, "isolation": "declared", **options})).model)


def of_mappings(run: Run, data: Any = None, **options: Any) -> Tensor:
    return flat(
        fit(
            ByName(), own_loss, by_name() if data is None else data, run, **arguments({"seed": 5, "isolation": "declared", **options})
        ).model
    )
