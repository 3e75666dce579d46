"""NetworkOptions: the options of training a network, and their refusal where another model is trained."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from lethe.errors import InputError
from lethe.train.checkpoints.file import Checkpoints
from lethe.train.clip import Group
from lethe.train.network.proximal.steps import ProximalGroup


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NetworkOptions:
    """The options of `lethe.train.fit` that apply to networks only; `fit` says what each field is."""

    optimizer: torch.optim.Optimizer | None = None
    clip_groups: Sequence[Group] | str | None = None
    proximal_groups: Sequence[ProximalGroup] | None = None
    method: str | None = None
    physical_size: int | None = None
    gradient_memory: int | None = None
    users: Any = None
    records_per_user: int | None = None
    views: int = 1
    ema: float | None = None
    secure: bool = False
    isolation: str = "checked"
    checkpoints: Checkpoints | str | os.PathLike[str] | None = None

    def refuse_for(self, model: str, *, understood: tuple[str, ...] = ()) -> None:
        """Refuse options that a model does not understand.

        Args:
            model: in words.
            understood: the names of those that it does.
        Raises:
            InputError: one that it does not differs from its default; it is named.
        """
        for field in fields(self):
            if field.name not in understood and getattr(self, field.name) is not field.default:
                raise InputError(
                    f"{field.name}: given, and {model} does not know it.",
                    source=f"{field.name} in lethe.train.fit",
                    remedy=f"leave {field.name} out, or train the model as a torch.nn.Module.",
                )
