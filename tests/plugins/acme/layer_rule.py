"""A layer and its rule: one factor for each feature."""

from __future__ import annotations

import torch
from lethe.train.clipping import LayerGradients
from torch import Tensor, nn


class Scale(nn.Module):
    """$s = w \\odot u$ for rows u."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, rows: Tensor) -> Tensor:
        return rows * self.weight


class ScaleGradients(LayerGradients):
    """$G_i = u_i \\odot g_i$, summed over the uses."""

    def per_record(self, name: str) -> Tensor:
        least = torch.promote_types(self.uses[0].grad_output.dtype, torch.float32)
        return torch.stack([use.inputs[0].to(least) * use.grad_output.to(least) for use in self.uses]).sum(0)

    def squared_norms(self) -> Tensor:
        return self.per_record("weight").double().square().sum(1)

    def weighted_sums(self, weights: Tensor) -> dict[str, Tensor]:
        rows = self.per_record("weight")
        rows = torch.where(weights[:, None] == 0, 0.0, rows)  # a record of weight 0 may hold NaN
        return {"weight": weights.double() @ rows.double()}
