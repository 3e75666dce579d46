"""Small LightningModules, Trainers for them, and the same training in a loop of one's own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lightning.pytorch as L
import torch
from networks import RECORDS, flat, make_data, make_network, make_network_run
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lethe
from lethe.integrations.lightning import PrivateTraining
from lethe.train import PrivacyEngine, TrainOptions

DELTA = 1e-3


@contextmanager
def left_as_it_was() -> Iterator[None]:
    """Within: a Trainer of several devices leaves what it tells its processes in the environment, and a process group."""
    with patch.dict(os.environ):
        yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def data() -> tuple[Tensor, Tensor]:
    return make_data(torch.float32)


def network() -> nn.Sequential:
    return make_network(torch.float32)


def run_of(**changes: Any) -> lethe.Run:
    return make_network_run(**{"steps": 10, "step_size": 0.01, "noise_multiplier": 1.0, "neighbours": "add_or_remove", **changes})


class Classifier(L.LightningModule):
    """A module as tutorials have it; its loss is one a record, or the batch's mean."""

    def __init__(self, reduction: str = "none") -> None:
        super().__init__()
        self.net = network()
        self.reduction = reduction

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        features, labels = batch
        return nn.functional.cross_entropy(self.net(features), labels, reduction=self.reduction)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5), "interval": "step"}]


class Plain(Classifier):
    """By plain SGD, of which one step shows its gradient."""

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Dicts(Classifier):
    """The same of records that are dicts."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return {"loss": super().training_step((batch["features"], batch["label"]), batch_idx)}


def loader(batch_size: int = 5) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*data()), batch_size=batch_size, shuffle=True)


def dict_loader() -> DataLoader[Any]:
    features, labels = data()
    return DataLoader([{"features": one, "label": two} for one, two in zip(features, labels, strict=True)], batch_size=5)  # pyright: ignore


def users() -> list[str]:
    """Whose each record is: six users, with 2 to 6 records."""
    return [f"person {place * place % 7 + place % 2}" for place in range(RECORDS)]


def trainer(*callbacks: Any, folder: Path | None = None, **options: Any) -> L.Trainer:
    """A quiet Trainer on the CPU."""
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "enable_checkpointing": folder is not None}
    alone = {"accelerator": "cpu", "devices": 1, "default_root_dir": folder}
    return L.Trainer(callbacks=list(callbacks), **{**quiet, **alone, "max_epochs": 2, **options})


def fitted(module: L.LightningModule, private: PrivateTraining, records: Any = None, **options: Any) -> L.Trainer:
    made = trainer(private, **options)
    made.fit(module, loader() if records is None else records)
    return made


def by_hand(run: lethe.Run, *, physical_size: int, seed: int = 5, autocast: bool = False, clip: float | None = None) -> Tensor:
    """The training of `Classifier` in a loop of one's own; its noisy gradient is clipped in the optimiser's step."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    def losses(batch: Any) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

    engine = PrivacyEngine(model, optimizer, losses, data(), run, options=TrainOptions(physical_size=physical_size, seed=seed))
    batches = engine.batches()
    for batch in batches:
        engine.backward(batch)
        if engine.batch_complete and clip is not None:
            handle = optimizer.register_step_pre_hook(lambda *_: torch.nn.utils.clip_grad_norm_(model.parameters(), clip) and None)
            optimizer.step()
            handle.remove()
        else:
            optimizer.step()
        optimizer.zero_grad()
        if engine.stepped:
            schedule.step()
    return flat(model)
