"""One network of Liang et al. 2025: trained on the candidates that its coins include, and asked about all of them at each checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from lethe.audit.games.shadow_models import Candidates, Integers
from lethe.calculus.domains import FloatArray
from lethe.run.run import Run
from lethe.train import TrainOptions, fit
from lethe_experiments.liang.image_networks import image_network
from lethe_experiments.liang.plans import Plan, Setting

LEFT_OUT = -100
"""The label at which the loss of a record is 0, and so its gradient: the record is zeroed out."""
_AT_ONCE = 1024


def _nobody(executed: Run) -> None:
    """Is told of a run, and does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NetworkTrainer:
    """Trains one network of a setting, in whatever process: all of it follows from the candidates and the seed.

    Args:
        pictures: all records, shape (n, channels, height, width).
        labels: shape (n,), from 0, every class among them.
        plan: how long, and which network.
        setting: batch size, domain and noise.
        told: the run that was executed, after each training.
    """

    pictures: npt.NDArray[np.float32]
    labels: Integers
    plan: Plan
    setting: Setting
    told: Callable[[Run], None] = _nobody

    def __call__(self, candidates: Candidates, seed: int) -> FloatArray:
        """As `ShadowTrainer`."""
        plan, setting = self.plan, self.setting
        run = plan.run(setting, plan.epochs[-1])
        ends = {epoch * plan.steps_per_epoch(setting) for epoch in plan.epochs}
        device = torch.device("cuda" if plan.network != "small" and torch.cuda.is_available() else "cpu")
        model = image_network(plan.network, self.pictures.shape[1:], int(self.labels.max()) + 1, seed=seed).to(device)
        seen = torch.from_numpy(self.pictures[candidates.rows])
        targets = torch.from_numpy(np.where(candidates.included, self.labels[candidates.rows], LEFT_OUT))
        answers: list[FloatArray] = []

        def attacked(step: int, steps: int) -> None:
            del steps
            if step in ends:
                answers.append(_answers(model, seen, device))

        fitted = fit(
            model,
            nn.CrossEntropyLoss(reduction="none", ignore_index=LEFT_OUT),
            (seen, targets),
            run,
            options=TrainOptions(seed=seed, progress=attacked),
        )
        self.told(fitted.run)
        return np.stack(answers)


@torch.no_grad()
def _answers(model: nn.Module, pictures: Tensor, device: torch.device) -> FloatArray:
    parts = [model(pictures[start : start + _AT_ONCE].to(device)).cpu() for start in range(0, len(pictures), _AT_ONCE)]
    return torch.cat(parts).double().numpy()
