r"""The attack of shadow models: for each class a two-layer network that tells members from others by their logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lethe.audit.games.shadow_models import Integers, MembershipAttack
from lethe.audit.statistics.counts import Booleans
from lethe.calculus.domains import FloatArray
from lethe.errors import InputError
from lethe.train.core.generators import seeded_generators

HIDDEN = 50
BATCH_SIZE = 100
LEARNING_RATE = 0.01
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttackNetworks:
    """K - 50 - 2 networks with rectified linear units, one for each checkpoint and class, as stacked layers.

    Args:
        layers: weights (G, K, 50), biases (G, 1, 50), weights (G, 50, 2), biases (G, 1, 2), with G = checkpoints x classes.
    """

    layers: tuple[Tensor, Tensor, Tensor, Tensor]

    @classmethod
    def initial(cls, groups: int, inputs: int, generator: torch.Generator) -> AttackNetworks:
        r"""Uniform on $\pm 1/\sqrt{m}$, m the inputs of the layer, biases too: what PyTorch does by default."""
        shapes = (
            ((groups, inputs, HIDDEN), inputs),
            ((groups, 1, HIDDEN), inputs),
            ((groups, HIDDEN, 2), HIDDEN),
            ((groups, 1, 2), HIDDEN),
        )
        first, bias, second, offset = (
            ((2.0 * torch.rand(shape, generator=generator) - 1.0) / width**0.5).requires_grad_() for shape, width in shapes
        )
        return cls(layers=(first, bias, second, offset))

    def __call__(self, logits: Tensor) -> Tensor:
        """Scores of "other" and "member", shape (G, B, 2), of logits of shape (G, B, K)."""
        first, bias, second, offset = self.layers
        return torch.baddbmm(offset, torch.baddbmm(bias, logits, first).relu(), second)


def learn_attack(logits: FloatArray, labels: Integers, included: Booleans, seed: int, *, steps: int) -> MembershipAttack:
    """Train the attack networks, all at once, each on the records of its class, by SGD with momentum and weight decay.

    Args:
        logits: of shadow models, shape (checkpoints, k, classes).
        labels: shape (k,), whole numbers below classes.
        included: shape (k,).
        seed: of start and batches.
        steps: of each network.
    Raises:
        InputError: a class has no record.
    """
    checkpoints, _, classes = logits.shape
    members = [np.flatnonzero(labels == label) for label in range(classes)]
    empty = [label for label, rows in enumerate(members) if not rows.size]
    if empty:
        raise InputError(f"labels: no shadow model has a candidate of class {empty[0]}.", remedy="take more candidates or shadow models")
    (generator,) = seeded_generators(seed, (_CPU,))
    networks = AttackNetworks.initial(checkpoints * classes, classes, generator)
    optimizer = torch.optim.SGD(networks.layers, lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    inputs, answers = torch.from_numpy(logits).float(), torch.from_numpy(included).long()
    sizes = torch.tensor([rows.size for rows in members])
    padded = torch.zeros((classes, int(sizes.max())), dtype=torch.long)
    for label, rows in enumerate(members):
        padded[label, : rows.size] = torch.from_numpy(rows)
    for _ in range(steps):
        # Drawn with replacement, so that classes of unlike sizes go through one product.
        drawn = (torch.rand((classes, BATCH_SIZE), generator=generator) * sizes[:, None]).long()
        rows = padded.gather(1, drawn)
        scores = networks(inputs[:, rows].flatten(0, 1))
        right = answers[rows].repeat(checkpoints, 1)
        losses = torch.nn.functional.cross_entropy(scores.flatten(0, 1), right.flatten(), reduction="sum") / BATCH_SIZE
        optimizer.zero_grad()
        losses.backward()  # the sum over networks: each gets the gradient of its own mean
        optimizer.step()

    @torch.no_grad()
    def score(others: FloatArray, classes_of: Integers) -> FloatArray:
        chosen = torch.arange(checkpoints)[:, None] * classes + torch.from_numpy(classes_of)
        every = networks(torch.from_numpy(others).float().repeat_interleave(classes, dim=0)).softmax(dim=2)[:, :, 1]
        return every[chosen, torch.arange(others.shape[1])].double().numpy()

    return score
