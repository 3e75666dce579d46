"""Who trains: plain PyTorch, Lethe, Opacus two ways, and DPTrainer, each as a function that takes one step of AdamW."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from finetune_models import AS_IT_IS, MODELS, Built, Ease, RecordLoss
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lethe
from lethe.train import PrivacyEngine, TrainOptions

CLIP_NORM, NOISE_MULTIPLIER, STEP_SIZE = 1.0, 1.0, 1e-4
Step = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Where:
    """Where models are trained, and in which precision they compute.

    Args:
        device: "cpu", or "cuda".
        bf16: under autocast to bfloat16.
        records: of a step; None: the model's own number.
    """

    device: str = "cpu"
    bf16: bool = False
    records: int | None = None

    def built(self, name: str, ease: Ease = AS_IT_IS) -> Built:
        """A model and its batch, there."""
        with torch.device(self.device):
            model, inputs, targets = MODELS[name](ease) if self.records is None else MODELS[name](ease, records=self.records)
        return model.train(), inputs, targets

    def autocast(self) -> AbstractContextManager[Any]:
        """Around the forward pass."""
        return torch.autocast(self.device, torch.bfloat16, enabled=self.bf16)

    def clock(self) -> tuple[float, float]:
        """Wall and processor time, when all that was begun is done."""
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter(), time.process_time()


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], lr=STEP_SIZE)


def plain(name: str, where: Where) -> Step:
    """Without privacy."""
    model, inputs, targets = where.built(name)
    optimizer, loss = _optimizer(model), RecordLoss()

    def step() -> None:
        optimizer.zero_grad()
        with where.autocast():
            losses = loss(model(inputs), targets)
        losses.backward()
        optimizer.step()

    return step


def by_lethe(name: str, where: Where, **options: Any) -> Step:
    """PrivacyEngine with everything that is on by default: checks, noise, the run's record; and options."""
    model, inputs, targets = where.built(name)
    loss = RecordLoss()
    loss.reduction = "none"
    run = lethe.Run(
        records=len(inputs),
        batches=lethe.batches.Shuffled(len(inputs)),
        steps=100_000,
        step_size=STEP_SIZE,
        clip_norm=CLIP_NORM,
        noise_multiplier=NOISE_MULTIPLIER,
        release="all",
        neighbours="replace_one",
    )

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        with where.autocast():
            return loss(model(batch[0]), batch[1])

    optimizer = _optimizer(model)
    engine = PrivacyEngine(model, optimizer, losses, (inputs, targets), run, options=TrainOptions(**options))
    batches: Iterator[tuple[Tensor, Tensor]] = iter(engine.batches())

    def step() -> None:
        engine.backward(next(batches))
        optimizer.step()
        optimizer.zero_grad()

    return step


def _opacus(mode: str) -> Callable[[str, Where, Ease], Step]:
    def build(name: str, where: Where, ease: Ease) -> Step:
        from opacus import PrivacyEngine as Opacus  # an optional rival  # pyright: ignore[reportMissingImports]

        warnings.filterwarnings("ignore")
        model, inputs, targets = where.built(name, ease)
        opacus: Any = Opacus()
        made = opacus.make_private(
            module=model,
            optimizer=_optimizer(model),
            criterion=RecordLoss(),
            data_loader=DataLoader(TensorDataset(inputs, targets), batch_size=len(inputs)),
            noise_multiplier=NOISE_MULTIPLIER,
            max_grad_norm=CLIP_NORM,
            poisson_sampling=False,
            grad_sample_mode=mode,
        )
        module, optimizer, loss = made[0], made[1], made[2] if mode == "ghost" else RecordLoss()

        def step() -> None:
            optimizer.zero_grad()
            with where.autocast():
                losses = loss(module(inputs), targets)
            losses.backward()
            optimizer.step()

        return step

    return build


class _WithLoss(nn.Module):
    """Of a model what a Trainer calls: its mean loss, which is given the labels too."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.loss = model, RecordLoss()

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Inputs and labels of a batch."""
        return {"loss": self.loss(self.model(inputs), labels)}


def dptrainer(name: str, where: Where, ease: Ease) -> Step:
    """JetBrains' DPTrainer 0.1.2, of gradients by hooks: the calls that its loop makes for a batch."""
    from dptrainer import DPTrainer, PrivacyArguments  # an optional rival  # pyright: ignore[reportMissingImports]
    from transformers import TrainingArguments

    model, inputs, targets = where.built(name, ease)
    batch = {"inputs": inputs, "labels": targets}
    many = [{key: value[0].cpu() for key, value in batch.items()}] * 1000 * len(inputs)
    privacy = PrivacyArguments(noise_multiplier=NOISE_MULTIPLIER, per_sample_max_grad_norm=CLIP_NORM, poisson_sampling=False)
    args = TrainingArguments(
        tempfile.mkdtemp(),
        use_cpu=where.device == "cpu",
        bf16=where.bf16,
        learning_rate=STEP_SIZE,
        per_device_train_batch_size=len(inputs),
        report_to="none",
        save_strategy="no",
        restore_callback_states_from_checkpoint=True,
    )
    trainer: Any = DPTrainer(model=_WithLoss(model).train(), args=args, train_dataset=many, privacy_args=privacy)
    trainer.current_gradient_accumulation_steps = 1

    def step() -> None:
        trainer.training_step(trainer.model, batch)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad(set_to_none=True)

    return step


_HOOKS, _GHOST = _opacus("hooks"), _opacus("ghost")

ENGINES: dict[str, Callable[[str, Where], Step]] = {
    "plain": plain,
    "lethe": by_lethe,
    "lethe per layer": lambda name, where: by_lethe(name, where, clip_groups="per_layer"),
    "opacus hooks": lambda name, where: _HOOKS(name, where, AS_IT_IS),
    "opacus ghost": lambda name, where: _GHOST(name, where, AS_IT_IS),
    "dptrainer": lambda name, where: dptrainer(name, where, AS_IT_IS),
    "opacus hooks (eased)": lambda name, where: _HOOKS(name, where, Ease(positions=True)),
    "opacus ghost (eased)": lambda name, where: _GHOST(name, where, Ease(positions=True, untied=True)),
    "dptrainer (eased)": lambda name, where: dptrainer(name, where, Ease(positions=True)),
}
"""Eased: see `Ease`; measured where the model as it is is refused."""
