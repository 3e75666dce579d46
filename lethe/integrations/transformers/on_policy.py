"""Trainers that learn from answers which the model generates now, such as TRL's GRPO: a record is a prompt, with its answers of one step.

The loop (loop.py) asks `Answers` for each record's tensors. One record at a time is answered, scored and differentiated: rewards,
advantages, padding and loss then depend on no other record, by construction.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.train.core.comparison import chance
from lethe.train.data.map_style import MapStyleSource


def is_on_policy(trainer: Any) -> bool:
    """Whether a Trainer, or its class, makes answers of its own."""
    return hasattr(trainer, "_generate_and_score_completions")


def refuse_of_batch(trainer: Any) -> None:
    """Refuse what takes rewards, or answers, of more than one record or step."""
    args = trainer.args
    wrong = {
        "scale_rewards": (getattr(args, "scale_rewards", None) == "batch", 'scale_rewards="group", or "none"'),
        "normalize_advantages": (
            getattr(args, "normalize_advantages", False),
            "leave it out: advantages are within a prompt's answers",
        ),
        "num_iterations": (getattr(args, "num_iterations", 1) != 1, "num_iterations=1: a record that is used again costs again"),
        "world_size": (args.world_size > 1, "one process: TRL gathers rewards from all of them"),
    }
    for name, (refused, remedy) in wrong.items():
        if refused:
            raise InputError(
                f"{name}: got {getattr(args, name)!r}; what a record is worth would depend on others.",
                source=type(args).__name__,
                remedy=f"{remedy}.",
            )


class _Positions:
    """The numbers of the records: what they say is read when they are answered."""

    def __init__(self, records: int) -> None:
        self._records = records

    def __len__(self) -> int:
        return self._records

    def __getitem__(self, position: int) -> dict[str, int]:
        return {"place": position}


class Answers:
    """The batch of one record, answered and scored by a Trainer."""

    def __init__(self, trainer: Any) -> None:
        self._trainer, self._others = trainer, dict[str, Any]()
        self.source = MapStyleSource(_Positions(len(trainer.train_dataset)))

    def of(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of the record's answers, in a batch of one record. Their chance is fresh: by a known seed, how long the answers to
        other records were would decide on them."""
        (position,) = batch["place"].tolist()
        rows = [dict(self._trainer.train_dataset[position]) for _ in range(self._trainer.num_generations)]
        with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()):
            torch.manual_seed(chance.getrandbits(63))
            generated: dict[str, Any] = self._trainer._generate_and_score_completions(rows)
        self._others = {name: value for name, value in generated.items() if not isinstance(value, Tensor)}
        return {name: value.detach()[None] for name, value in generated.items() if isinstance(value, Tensor)}

    def unfolded(self, batch: Mapping[str, Tensor]) -> dict[str, Any]:
        """The answers as the Trainer made them."""
        return {**{name: value[0] for name, value in batch.items()}, **self._others}


def sizes_of_prompts(sizes: tuple[int, int, int], answers: int) -> tuple[int, int, int]:
    """Of a Trainer whose batches count answers: one prompt at a time, and so many a step."""
    return 1, max(1, sizes[0] * sizes[1] * sizes[2] // answers), 1
