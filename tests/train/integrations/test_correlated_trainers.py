"""Correlated noise in the Trainers of transformers and Lightning: that of a loop of one's own, and certified as such."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import lethe
from lethe.train import fit

BANDED: Any = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.6, 0.3]}
DESIGNS: Any = [(lethe.batches.Cyclic(5), "correlated-noise"), (lethe.batches.CyclicPoisson(5, groups=4), "correlated-sampled")]


@pytest.mark.nightly(by_day="test_the_trainer_of_transformers_takes_the_noise_of_fit")
@pytest.mark.parametrize(("batches", "theorem"), DESIGNS)
def test_lightning_takes_the_noise_of_a_loop_of_one_s_own(batches: Any, theorem: str) -> None:
    pytest.importorskip("lightning")
    from lightning_modules import DELTA, Classifier, by_hand, fitted, flat, run_of

    from lethe.integrations.lightning import PrivateTraining

    run = run_of(batches=batches, neighbours="zero_out", noise=BANDED)
    module = Classifier()
    fitted(module, PrivateTraining(run=run, delta=DELTA, seed=5))
    assert torch.equal(flat(module), by_hand(run, physical_size=5))
    assert not torch.equal(flat(module), by_hand(run.replace(noise=None), physical_size=5))
    private = PrivateTraining(run=run, delta=DELTA)
    fitted(Classifier(), private)
    assert private.run == run
    assert (private.certificate_.theorem, private.certificate_.epsilon) == (theorem, lethe.certify(run, DELTA).epsilon)


@pytest.mark.filterwarnings("ignore::lethe.errors.LetheWarning")
def test_the_trainer_of_transformers_takes_the_noise_of_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its noise comes from fresh entropy, which here is the same for both."""
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from small_models import DELTA, classifier, flat, padded, private, run_of, sentences

    from lethe.integrations.transformers import record_losses
    from lethe.train.network.noise import training_noise

    monkeypatch.setattr(training_noise, "fresh_numpy_generator", lambda: np.random.default_rng(3))
    run = run_of(noise=BANDED, noise_multiplier=2.0, clip_norm=0.5, steps=6)
    given = {"optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant", "per_device_train_batch_size": 8}
    trainer = private(tmp_path, classifier(), sentences(), run=run, **given)
    trainer.train()
    model = classifier()
    records: Any = DataLoader(sentences(), batch_size=8, collate_fn=padded)  # pyright: ignore[reportArgumentType]
    fit(model.train(), record_losses(model), records, run, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    torch.testing.assert_close(flat(trainer.model), flat(model), rtol=1e-9, atol=1e-12)
    recorded = trainer.record().run
    assert recorded == run
    assert (trainer.certificate_.theorem, trainer.certificate_.epsilon) == ("correlated-noise", lethe.certify(run, DELTA).epsilon)
