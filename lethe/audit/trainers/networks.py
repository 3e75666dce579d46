"""Audits of `lethe.train.fit` on any network: by its losses, its displacement, or every noisy gradient that it took a step with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lethe.audit.config import CanaryKind
from lethe.audit.games.canaries import Data, Record, blank, mislabelled
from lethe.audit.games.trials import TrainFunction
from lethe.audit.statistics.setting import Threat
from lethe.audit.trainers.training import Canary, RunTraining, Scores, unknown_threat
from lethe.calculus.correlated.matrices import as_matrix
from lethe.calculus.domains import FloatArray
from lethe.errors import InputError
from lethe.run.participation import Participation, unknown_participation
from lethe.run.run import Run
from lethe.train import TrainOptions, fit
from lethe.train.core.samplers import draw_batches

IGNORED = -100
"""The target that PyTorch's losses take for none: a record with it has loss 0."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Watched:
    """The observations of one training: the model, its displacement, and each step's share of each canary in what was released.

    Args:
        model: after the last step.
        displacement: of all trained parameters, shape (D,).
        shares: shape (T, m); without rows if nothing was watched.
    """

    model: nn.Module
    displacement: FloatArray
    shares: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NetworkTraining(RunTraining):
    """`fit` as (data, seed) -> Watched.

    Args:
        run: what it carries out; for the white-box game its release must be all.
        build: makes the model; called with PyTorch's seed fixed, so that all trainings begin alike: the adversary knows the start.
        loss: (outputs, targets) -> one loss a record.
        classes: their public number.
        fit: `lethe.train.fit`, or a function that takes the same arguments and trains the model by another road.
        watching: canaries whose share of every noisy gradient is taken down.
    """

    run: Run
    build: Callable[[], nn.Module]
    loss: Callable[[Any, Any], Tensor] = field(default_factory=lambda: nn.CrossEntropyLoss(reduction="none"))
    classes: int = 2
    fit: Callable[..., Any] = fit
    watching: tuple[Canary, ...] = ()

    def __call__(self, data: Data, seed: int) -> Watched:
        """Train once."""
        model = self.built()
        start = _flat(model)
        watch = _Watch(model, self)
        watched = {"optimizer": watch.optimizer()} if self.watching else {}
        self.fit(model, self.loss, data, self.run, **watched, options=TrainOptions(seed=seed, progress=False))
        return Watched(model=model, displacement=(_flat(model) - start).numpy(), shares=np.array(watch.shares))

    def built(self) -> nn.Module:
        """A model at the start of training."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.build()

    def canaries(self, kind: CanaryKind, data: Data, positions: Sequence[int], *, seed: int) -> list[Canary]:
        """See `AuditedTraining`: mislabelled records, or blank ones; those in their place have the next label, their own, or none."""
        if kind not in ("auto", "mislabelled", "blank"):
            raise InputError(f"canary: got {kind!r}; a network's gradients follow from a record.", remedy="take mislabelled or blank.")
        found = [self._canary(kind, data, position) for position in positions]
        if self.run.neighbours != "replace_one" and self._gradient(self.built(), found[0].outside).norm() > 0:
            raise InputError(
                f"loss: a record with target {IGNORED} has a gradient; {self.run.neighbours} needs a record without.",
                source="the argument loss",
                remedy=f"give nn.CrossEntropyLoss(reduction='none'), which ignores target {IGNORED}, or audit replace_one.",
            )
        return found

    def game(self, threat: Threat, canaries: Sequence[Canary]) -> tuple[TrainFunction, Scores]:
        """See `AuditedTraining`."""
        if threat == "white_box":
            steps = np.array([self._takes_part(canary) for canary in canaries]).T
            return replace(self, watching=tuple(canaries)), _Shares(self._weights(steps))
        if threat == "final_model":
            model = self.built()
            apart = torch.stack([self.difference(model, canary) for canary in canaries])
            return self, _Along((apart / apart.norm(dim=1, keepdim=True)).numpy())
        if threat == "black_box":
            gap = _LossGap(loss=self.loss, canaries=tuple(canaries))
            return self, replace(gap, start=gap.of(self.built()))
        known: tuple[Threat, ...] = ("white_box", "final_model", "black_box")
        raise unknown_threat(threat, known, "the start is what `build` makes;")

    def difference(self, model: nn.Module, canary: Canary) -> Tensor:
        """The clipped gradient of a canary less that of the record in its place, at the model's parameters, shape (D,)."""
        return self._clipped(model, canary.inside) - self._clipped(model, canary.outside)

    def _takes_part(self, canary: Canary) -> NDArray[np.bool_]:
        """At which steps the adversary knows that the canary may be in the batch: all, but where each record has a public slot."""
        run, always = self.run, np.ones(self.run.total_steps, dtype=bool)
        if canary.position is None:
            return always
        match run.batches.participation:
            case Participation.PUBLIC_SLOT:
                records = torch.arange(run.records)
                batches = draw_batches(run.uncorrelated, torch.Generator())  # nothing is drawn: the order is public
                return np.array([bool((records[batch] == canary.position).any()) for batch in batches])
            case Participation.DRAW_IN_PUBLIC_GROUP:
                groups = run.batches.groups_of_records
                return np.arange(run.total_steps) % groups == canary.position % groups
            case Participation.EVERY_STEP | Participation.SECRET_SLOT | Participation.FRESH_SECRET_SLOT | Participation.INDEPENDENT_DRAW:
                return always
        raise unknown_participation(run.batches.design, run.batches.participation)

    def _weights(self, steps: NDArray[np.bool_]) -> FloatArray:
        r"""Of each step's share in the score, shape (T, m): 1 where the canary may take part; of correlated noise $C^\top C$ times that.

        It is then the likelihood ratio of $y = C\hat g$, whose noise is independent, for a gradient that never changes.
        """
        weights = steps.astype(np.float64)
        if self.run.noise is None:
            return weights
        strategy = as_matrix(self.run.noise.strategy(self.run.total_steps))
        return np.asarray(strategy.T @ (strategy @ weights))

    def _canary(self, kind: CanaryKind, data: Data, position: int) -> Canary:
        own = tuple(column[position] for column in data)
        inside = blank(data, label=0) if kind == "blank" else mislabelled(data, position, classes=self.classes)
        words = "blank record" if kind == "blank" else f"record {position} with the next label"
        if self.run.neighbours == "replace_one":
            outside, against = ((*inside[:-1], 1), "another label") if kind == "blank" else (own, "its own label")
        else:
            outside, against = (*inside[:-1], IGNORED), "a record without gradient"
        return Canary(inside, outside, f"{words}, against {against}", position)

    def _clipped(self, model: nn.Module, record: Record) -> Tensor:
        gradient = self._gradient(model, record)
        bound = self.run.clip_bound
        return gradient * min(1.0, bound / max(float(gradient.norm()), 1e-300))

    def _gradient(self, model: nn.Module, record: Record) -> Tensor:
        *inputs, target = (torch.as_tensor(np.asarray(entry))[None] for entry in record)
        parameters = _trained(model)
        with torch.enable_grad():
            total = self.loss(model(*inputs), target).sum()
        gradients = torch.autograd.grad(total, parameters, allow_unused=True)
        parts = [torch.zeros_like(each) if one is None else one for each, one in zip(parameters, gradients, strict=True)]
        return torch.cat([part.flatten() for part in parts]).to(torch.float64)


class _Watch:
    """Takes down, before each step, how much of each canary is in the noisy gradient that the step is taken with."""

    def __init__(self, model: nn.Module, training: NetworkTraining) -> None:
        self.shares: list[FloatArray] = []
        self._model, self._training = model, training
        # A model of its own to differentiate: the one in training carries what clips it.
        self._shadow = training.built()

    def optimizer(self) -> torch.optim.SGD:
        """Plain descent with the run's step sizes, watched."""
        descent = torch.optim.SGD(_trained(self._model), lr=float(self._training.run.step_sizes[0]))
        descent.register_step_pre_hook(self._before)
        return descent

    @torch.no_grad()
    def _before(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        given = [parameter.grad for parameter in _trained(self._model)]
        gradient = torch.cat([part.flatten() for part in given if part is not None]).to(torch.float64)
        for mine, theirs in zip(_trained(self._shadow), _trained(self._model), strict=True):
            mine.copy_(theirs)
        run = self._training.run
        apart = torch.stack([self._training.difference(self._shadow, canary) for canary in self._training.watching])
        step_size = float(run.step_sizes[len(self.shares)])
        self.shares.append((run.batch_size / run.clip_bound**2) * (apart @ gradient).numpy())
        for group in optimizer.param_groups:
            group["lr"] = step_size


@dataclass(frozen=True, slots=True, eq=False)
class _Shares:
    """The shares of each canary, weighted, shape (T, m), and added up."""

    weights: FloatArray

    def __call__(self, watched: Watched) -> FloatArray:
        return np.where(self.weights != 0.0, self.weights * watched.shares, 0.0).sum(axis=0)


@dataclass(frozen=True, slots=True, eq=False)
class _Along:
    directions: FloatArray

    def __call__(self, watched: Watched) -> FloatArray:
        return -(self.directions @ watched.displacement)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _LossGap:
    """How much smaller the loss of each canary is than that of the record in its place, less what it was at the start."""

    loss: Callable[[Any, Any], Tensor]
    canaries: tuple[Canary, ...]
    start: FloatArray | float = 0.0

    def __call__(self, watched: Watched) -> FloatArray:
        return self.of(watched.model) - self.start

    def of(self, model: nn.Module) -> FloatArray:
        """That gap now, shape (m,)."""
        return np.array([self._loss(model, canary.outside) - self._loss(model, canary.inside) for canary in self.canaries])

    @torch.no_grad()
    def _loss(self, model: nn.Module, record: Record) -> float:
        *inputs, target = (torch.as_tensor(np.asarray(entry))[None] for entry in record)
        return float(self.loss(model(*inputs), target))


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


@torch.no_grad()
def _flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in _trained(model)]).to(torch.float64)
