"""NetworkTraining: audits of `lethe.train.fit` on any network, by its losses, by its displacement, or by every noisy gradient of its
steps.

`audit` plays with it; an adversary who sees every noisy step (white box) gets them through a watched optimiser.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lethe.audit.config import CanaryKind
from lethe.audit.games.canaries import Data, Record, TrainFunction, blank, mislabelled, record_of
from lethe.audit.statistics.curves import Threat
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
    """The observations of one training: the last model, the displacement of its parameters, shape (D,), and, of each step, the share of
    each canary in what was released, shape (T, m); without rows if nothing was watched.
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
        model, shares = self.built(), list[FloatArray]()
        start = _flat(model)
        watched = {"optimizer": _watched_descent(model, self, shares)} if self.watching else {}
        self.fit(model, self.loss, data, self.run, **watched, options=TrainOptions(seed=seed, progress=False))
        return Watched(model=model, displacement=(_flat(model) - start).numpy(), shares=np.array(shares))

    def built(self) -> nn.Module:
        """A model at the start of training."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.build()

    def canaries(self, kind: CanaryKind, data: Data, positions: Sequence[int], *, seed: int) -> list[Canary]:
        """Mislabelled records, or blank ones; those in their place have the next label, their own, or none."""
        if kind not in ("auto", "mislabelled", "blank"):
            raise InputError(f"canary: got {kind!r}; a network's gradients follow from a record.", remedy="take mislabelled or blank.")
        drawn = [self._canary(kind, data, position) for position in positions]
        if self.run.neighbours != "replace_one" and self._gradient(self.built(), drawn[0].outside).norm() > 0:
            raise InputError(
                f"loss: a record with target {IGNORED} has a gradient; {self.run.neighbours} needs a record without.",
                source="the argument loss",
                remedy=f"give nn.CrossEntropyLoss(reduction='none'), which ignores target {IGNORED}, or audit replace_one.",
            )
        return drawn

    def game(self, threat: Threat, canaries: Sequence[Canary]) -> tuple[TrainFunction, Scores]:
        """The training and the score of what the adversary sees: gradients, the final model, or its losses."""
        if threat == "white_box":
            steps = np.array([self._takes_part(canary) for canary in canaries]).T
            return replace(self, watching=tuple(canaries)), partial(_weighted, self._weights(steps))
        if threat == "final_model":
            apart = self.differences(self.built(), canaries)
            return self, partial(_along, (apart / apart.norm(dim=1, keepdim=True)).numpy())
        if threat == "black_box":
            return self, partial(self._nearer, tuple(canaries), self._gaps(self.built(), canaries))
        threats: tuple[Threat, ...] = ("white_box", "final_model", "black_box")
        raise unknown_threat(threat, threats, "the start is what `build` makes;")

    def differences(self, model: nn.Module, canaries: Sequence[Canary]) -> Tensor:
        """The clipped gradient of each canary less that of the record in its place, at the model's parameters, shape (m, D)."""
        return torch.stack([self._clipped(model, each.inside) - self._clipped(model, each.outside) for each in canaries])

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
        if self.run.noise is None:
            return steps.astype(np.float64)
        strategy = as_matrix(self.run.noise.strategy(self.run.total_steps))
        return np.asarray(strategy.T @ (strategy @ steps.astype(np.float64)))

    def _canary(self, kind: CanaryKind, data: Data, position: int) -> Canary:
        record = record_of(data, position)
        inside = blank(data, label=0) if kind == "blank" else mislabelled(data, position, classes=self.classes)
        words = "blank record" if kind == "blank" else f"record {position} with the next label"
        if self.run.neighbours == "replace_one":
            outside, against = ((*inside[:-1], 1), "another label") if kind == "blank" else (record, "its own label")
        else:
            outside, against = (*inside[:-1], IGNORED), "a record without gradient"
        return Canary(inside, outside, f"{words}, against {against}", position)

    def _nearer(self, canaries: Sequence[Canary], start: FloatArray, watched: Watched) -> FloatArray:
        return self._gaps(watched.model, canaries) - start

    @torch.no_grad()
    def _gaps(self, model: nn.Module, canaries: Sequence[Canary]) -> FloatArray:
        """How much smaller the loss of each canary is than that of the record in its place, shape (m,)."""

        def loss_of(record: Record) -> float:
            inputs, target = _batch_of(record)
            return float(self.loss(model(*inputs), target))

        return np.array([loss_of(canary.outside) - loss_of(canary.inside) for canary in canaries])

    def _clipped(self, model: nn.Module, record: Record) -> Tensor:
        gradient = self._gradient(model, record)
        return gradient * min(1.0, self.run.clip_bound / max(float(gradient.norm()), 1e-300))

    def _gradient(self, model: nn.Module, record: Record) -> Tensor:
        inputs, target = _batch_of(record)
        parameters = _trained(model)
        with torch.enable_grad():
            total = self.loss(model(*inputs), target).sum()
        gradients = torch.autograd.grad(total, parameters, allow_unused=True)
        parts = [torch.zeros_like(each) if gradient is None else gradient for each, gradient in zip(parameters, gradients, strict=True)]
        return torch.cat([part.flatten() for part in parts]).to(torch.float64)


def _watched_descent(model: nn.Module, training: NetworkTraining, shares: list[FloatArray]) -> torch.optim.SGD:
    """Plain descent that takes down, before each step, how much of each canary is in the noisy gradient that the step is taken with."""
    run = training.run
    descent = torch.optim.SGD(_trained(model), lr=float(run.step_sizes[0]))
    shadow = training.built()  # of its own to differentiate: the one in training carries what clips it

    @torch.no_grad()
    def before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        gradients = [parameter.grad for parameter in _trained(model)]
        gradient = torch.cat([part.flatten() for part in gradients if part is not None]).to(torch.float64)
        for shadow_parameter, theirs in zip(_trained(shadow), _trained(model), strict=True):
            shadow_parameter.copy_(theirs)
        apart = training.differences(shadow, training.watching)
        for group in optimizer.param_groups:
            group["lr"] = float(run.step_sizes[len(shares)])
        shares.append((run.batch_size / run.clip_bound**2) * (apart @ gradient).numpy())

    descent.register_step_pre_hook(before)
    return descent


def _weighted(weights: FloatArray, watched: Watched) -> FloatArray:
    """The shares of each canary, weighted, shape (T, m), and added up."""
    return np.where(weights != 0.0, weights * watched.shares, 0.0).sum(axis=0)


def _along(directions: FloatArray, watched: Watched) -> FloatArray:
    return -(directions @ watched.displacement)


def _batch_of(record: Record) -> tuple[list[Tensor], Tensor]:
    *inputs, target = (torch.as_tensor(np.asarray(entry))[None] for entry in record)
    return inputs, target


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


@torch.no_grad()
def _flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in _trained(model)]).to(torch.float64)
