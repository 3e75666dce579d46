"""Who trains: plain PyTorch, Lethe, and Opacus two ways, each as a function that takes one step of AdamW."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from finetune_models import AS_IT_IS, MODELS, Ease, RecordLoss
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lethe
from lethe.train import PrivacyEngine

CLIP_NORM, NOISE_MULTIPLIER, STEP_SIZE = 1.0, 1.0, 1e-4
Step = Callable[[], None]


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], lr=STEP_SIZE)


def plain(name: str) -> Step:
    """Without privacy."""
    model, inputs, targets = MODELS[name](AS_IT_IS)
    optimizer, loss = _optimizer(model.train()), RecordLoss()

    def step() -> None:
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()

    return step


def by_lethe(name: str) -> Step:
    """PrivacyEngine with everything that is on by default: checks, noise, the run's record."""
    model, inputs, targets = MODELS[name](AS_IT_IS)
    loss = RecordLoss()
    loss.reduction = "none"
    run = lethe.Run(
        records=len(inputs),
        batches=lethe.Shuffled(size=len(inputs)),
        steps=100_000,
        step_size=STEP_SIZE,
        clip_norm=CLIP_NORM,
        noise_multiplier=NOISE_MULTIPLIER,
        release="all",
    )
    engine = PrivacyEngine(run)
    model, optimizer, loader = engine.make_private(module=model.train(), optimizer=_optimizer(model), data=(inputs, targets))
    batches: Iterator[tuple[Tensor, Tensor]] = iter(loader)

    def step() -> None:
        given, wanted = next(batches)
        with engine.recording():
            losses = engine.losses(loss, model(given), wanted)
        engine.backward(losses)
        optimizer.step()
        optimizer.zero_grad()

    return step


def _opacus(mode: str) -> Callable[[str, Ease], Step]:
    def build(name: str, ease: Ease) -> Step:
        from opacus import PrivacyEngine as Opacus  # an optional rival  # pyright: ignore[reportMissingImports]

        warnings.filterwarnings("ignore")
        model, inputs, targets = MODELS[name](ease)
        opacus: Any = Opacus()
        made = opacus.make_private(
            module=model.train(),
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
            loss(module(inputs), targets).backward()
            optimizer.step()

        return step

    return build


_HOOKS, _GHOST = _opacus("hooks"), _opacus("ghost")

ENGINES: dict[str, Callable[[str], Step]] = {
    "plain": plain,
    "lethe": by_lethe,
    "opacus hooks": lambda name: _HOOKS(name, AS_IT_IS),
    "opacus ghost": lambda name: _GHOST(name, AS_IT_IS),
    "opacus hooks (eased)": lambda name: _HOOKS(name, Ease(positions=True)),
    "opacus ghost (eased)": lambda name: _GHOST(name, Ease(positions=True, untied=True)),
}
"""Eased: see `Ease`; measured where the model as it is is refused."""
