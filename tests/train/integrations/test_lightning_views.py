"""Lightning with several views of each record, and with the moving average of the iterates: as `fit` has them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("lightning")

from doors import arguments
from lightning_modules import COLUMNS, DELTA, RECORDS, Classifier, data, fitted, flat, network, run_of
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import lethe
from lethe.integrations.lightning import PrivateTraining
from lethe.train import fit
from lethe.train.data.map_style import MapStyleSource


class Augmented(Dataset[Any]):
    """Each record is read as it is, and the other way round, in turns: any two reads one after the other are both views.

    What is added is next to nothing, and random, as augmentation is."""

    def __init__(self) -> None:
        self.reads = [0] * RECORDS
        self.features, self.labels = data()

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        self.reads[place] += 1
        view = self.features[place].flip(0) if self.reads[place] % 2 else self.features[place]
        return view + 1e-8 * torch.rand(COLUMNS), self.labels[place]


class Plain(Classifier):
    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


RUN = run_of(batches=lethe.batches.Cyclic(5), steps=8, step_size=0.1, noise_multiplier=0.0, neighbours="zero_out")


@pytest.mark.filterwarnings("ignore::lethe.errors.RecordByRecordWarning")
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_views_and_the_average_are_those_of_fit(reduction: str) -> None:
    """One gradient of the mean loss of both views, clipped once; and the average of the same iterates."""
    given: dict[str, Any] = {"views": 2, "ema": 0.9}
    callback, module = PrivateTraining(run=RUN, delta=DELTA, **given), Plain(reduction)
    assert callback.averaged is None
    fitted(module, callback, DataLoader(Augmented(), batch_size=2), max_epochs=-1, max_steps=8)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = fit(model, nn.CrossEntropyLoss(reduction="none"), MapStyleSource(Augmented()), RUN, optimizer=optimizer, **arguments(given))
    torch.testing.assert_close(flat(module), flat(expected.model), rtol=0, atol=1e-6)
    assert (flat(module) - flat(network())).abs().max() > 1e-2
    averaged = Classifier()
    assert callback.averaged is not None
    averaged.load_state_dict(callback.averaged)
    assert expected.averaged is not None
    model.load_state_dict(expected.averaged)
    torch.testing.assert_close(flat(averaged), flat(model), rtol=0, atol=1e-6)
    assert [one.name for one in callback.record().released] == ["model", "moving average"]
