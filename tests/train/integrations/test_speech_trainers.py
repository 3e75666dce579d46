"""Trainers on speech: what sees padding is refused, whatever else the model draws."""

from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytest.importorskip("trl")

from small_models import DELTA, RECORDS, run_of
from trainers import SOUNDS, of_sounds, of_transformers, wav2vec2

import lethe
from lethe.errors import InputError
from lethe.integrations.transformers import privatize

ALL = run_of(batches=lethe.batches.Cyclic(RECORDS), steps=1, clip_norm=0.5)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_sounds_that_are_normalised_over_their_padding_are_refused(reduction: str, tmp_path: Path) -> None:
    """Dropout and layers that are left out, as Wav2Vec 2 has them, hide it no more; the loss of a record alone is its own in both ways."""
    changes = {"ctc_loss_reduction": reduction, "hidden_dropout": 0.1, "layerdrop": 0.1}
    made = of_transformers(lambda: wav2vec2("group", **changes), SOUNDS, of_sounds)(tmp_path, max_steps=-1)
    with pytest.raises(InputError, match="depends on how far its batch is padded"):
        privatize(made, run=ALL, delta=DELTA).train()


@pytest.mark.filterwarnings("ignore::lethe.errors.RecordByRecordWarning")
def test_what_numpy_draws_of_a_length_is_no_padding(tmp_path: Path) -> None:
    """Which moments SpecAugment leaves out."""
    make = lambda: wav2vec2(apply_spec_augment=True, mask_time_prob=0.5, mask_time_length=2, hidden_dropout=0.1)  # noqa: E731
    trainer = privatize(of_transformers(make, SOUNDS, of_sounds)(tmp_path, max_steps=-1), run=ALL, delta=DELTA)
    trainer.train()
    assert trainer.engine.diagnostics.gradients == "alone"
