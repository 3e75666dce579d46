"""`fit` on models of transformers: records by name, padded by a collator, with the loss of each record."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from doors import arguments
from small_models import RECORDS, classifier, gpt2, language_model, padded, sentences, texts
from torch import Tensor, nn
from torch.utils.data import DataLoader

import lethe
from lethe.errors import InputError, LetheWarning
from lethe.integrations.transformers import record_losses
from lethe.train import TrainOptions, fit

RUN = lethe.Run(
    records=RECORDS,
    batches=lethe.batches.Poisson(6),
    steps=3,
    step_size=0.5,
    clip_norm=0.3,
    noise_multiplier=0.0,
    release="all",
    neighbours="zero_out",
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LetheWarning)
        yield


def trained(model: nn.Module, loss: Any, data: Any, **options: Any) -> Tensor:
    fitted = fit(model, loss, data, RUN, **arguments({"seed": 5, **options}))
    assert fitted.diagnostics.gradients == "fast"
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("physical_size", [None, 4])
def test_a_classifier_of_uneven_records_is_that_of_each_record_alone(physical_size: int | None) -> None:
    """Its collator pads; without a loss function each record goes through the model alone, with the model's own loss."""
    data = DataLoader(sentences(length=None), batch_size=2, collate_fn=padded)  # pyright: ignore[reportArgumentType]
    model = classifier()
    found = trained(model, record_losses(model), data, physical_size=physical_size)
    alone = trained(classifier(), None, data, physical_size=1)
    torch.testing.assert_close(found, alone, rtol=1e-7, atol=1e-9)


@pytest.mark.nightly(by_day="test_a_classifier_of_uneven_records_is_that_of_each_record_alone")
@pytest.mark.slow
@pytest.mark.parametrize("make", [gpt2, language_model])
def test_a_language_model_is_that_of_each_record_alone(make: Any) -> None:
    """One record has no label at all: its loss is 0 here, and NaN where the model computes it: both add nothing to the sum."""
    records = texts()
    records[3]["labels"] = [-100] * len(records[3]["labels"])
    data = DataLoader(records, batch_size=2, collate_fn=padded)  # pyright: ignore[reportArgumentType]
    model = make()
    found = trained(model, record_losses(model), data)
    torch.testing.assert_close(found, trained(make(), None, data, physical_size=1), rtol=1e-5, atol=1e-6)  # its own loss is in float32


@pytest.mark.slow
def test_a_model_of_another_kind_has_no_known_loss() -> None:
    with pytest.raises(InputError, match="what the loss of one record is, is not known of Linear"):
        record_losses(nn.Linear(2, 2))
    with pytest.raises(InputError, match="label_smoothing: got 1"):
        record_losses(classifier(), label_smoothing=1)
    with pytest.raises(InputError, match=r"got a Tensor; it needs the batch(?s:.*)criterion\(model\(\*\*batch\), batch\)"):
        record_losses(classifier())(None, torch.zeros(2))  # pyright: ignore[reportArgumentType]
    model = classifier()
    with pytest.raises(InputError, match=r"of the labels .* it has none"):
        fit(model, record_losses(model), [{key: record[key] for key in ("input_ids", "attention_mask")} for record in sentences()], RUN)


@pytest.mark.slow
def test_a_loss_that_is_given_all_that_the_model_says_is_told_where_to_look() -> None:
    data = DataLoader(sentences(), batch_size=2, collate_fn=padded)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"(?s)loss: .*a SequenceClassifierOutput.*outputs\.logits.*record_losses"):
        fit(classifier(), nn.CrossEntropyLoss(reduction="none"), data, RUN, options=TrainOptions(seed=5))
