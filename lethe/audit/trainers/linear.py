"""LinearTraining: audits of a linear model, by canaries whose gradient has one direction whatever the model is; scores are displacement or
loss.

`audit` plays with it where a `Run` of a linear model, or a configuration of `lethe train`, is audited. Displacement is how far the weights
moved along the canary's gradient: the strongest test of a last iterate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from lethe.audit.config import CanaryKind
from lethe.audit.games.canaries import Data, Record, TrainFunction, blank, mislabelled, random_directions, record_of
from lethe.audit.statistics.curves import Threat
from lethe.audit.trainers.training import Canary, RunTraining, Scores, unknown_threat
from lethe.calculus.domains import FloatArray
from lethe.errors import InputError
from lethe.run.effective_loss import descends_envelope
from lethe.run.losses.linear import LinearLoss, require_linear_loss
from lethe.run.run import Run
from lethe.train import Fitted, Linear, TrainOptions, fit
from lethe.train.linear.gradients import losses_of, residuals_of
from lethe.train.linear.models import LinearPredictor, prepare_features

_CPU = torch.device("cpu")
_SIMULATIONS = 32
# Of residual bounds: how far away the target of a canary is, so that its residual never leaves the bound.
_FAR = 1e6
# Scores of the canary at a chosen start: there its residual is all that it can be.
_WRONG = 12.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearTraining(RunTraining):
    """`fit` of a `Linear` as (data, seed) -> Fitted.

    Args:
        run: what it carries out.
        classes: their public number, where there are any.
        initial: the start, known to the adversary; None: zeros.
    """

    run: Run
    classes: int | None = None
    initial: FloatArray | None = None

    def __call__(self, data: Data, seed: int) -> Fitted[LinearPredictor]:
        """Train once."""
        model = Linear(classes=self.classes, initial=self.initial)
        return fit(model, None, data, self.run, options=TrainOptions(seed=seed, progress=False))

    def canaries(self, kind: CanaryKind, data: Data, positions: Sequence[int], *, seed: int) -> list[Canary]:
        """Canaries in place of records; in a direction: features of the largest norm there, and the target that is farthest off."""
        if kind in ("mislabelled", "blank"):
            return [self._labelled(kind, data, position) for position in positions]
        columns, norm = data[0].shape[1], require_linear_loss(self.run.loss).feature_norm
        if kind == "least_moved":
            if len(positions) > 1:
                raise InputError("canary: got 'least_moved'; one coordinate is moved least.", remedy="take random_direction for many.")
            directions = np.eye(columns)[[self._least_moved(data, seed)]]
        else:
            directions = random_directions(len(positions), columns, seed=seed)
        words = "least moved coordinate" if kind == "least_moved" else "random direction"
        return [self._pair((norm * direction, self._target(True)), words) for direction in directions]

    def game(self, threat: Threat, canaries: Sequence[Canary]) -> tuple[TrainFunction, Scores]:
        """The training and the score: of the final model in white box, or of its losses, from the usual start or a chosen one."""
        start = self._start(canaries)
        directions = self.directions(canaries, start)
        if threat == "final_model":
            return self, partial(_displacements, start, directions)
        if threat == "black_box":
            return self, partial(_loss_gaps, tuple(canaries))
        if threat == "black_box_chosen_start":
            norms = _tensors(self.run, [canary.inside for canary in canaries])[0].norm(dim=1).numpy()
            chosen = start + np.einsum("m,mdk->dk", _WRONG / np.maximum(norms, 1e-12) / len(canaries), directions)
            return replace(self, initial=chosen), partial(_loss_gaps, tuple(canaries))
        threats: tuple[Threat, ...] = ("final_model", "black_box", "black_box_chosen_start")
        raise unknown_threat(threat, threats, "fit of a Linear shows its last iterate only;")

    def directions(self, canaries: Sequence[Canary], start: FloatArray) -> FloatArray:
        """Directions, shape (m, d, k), unit: the difference of the clipped gradients of each canary and its replacement, at the start."""
        inside = self._gradients([canary.inside for canary in canaries], start)
        apart = inside - self._gradients([canary.outside for canary in canaries], start)
        norms = np.linalg.norm(apart, axis=(1, 2), keepdims=True)
        if not norms.min() > 0.0:
            raise InputError(
                "canary: its gradient is that of the record in its place.", source="the argument canary", remedy="take random_direction."
            )
        return apart / norms

    def _labelled(self, kind: CanaryKind, data: Data, position: int) -> Canary:
        if (loss := require_linear_loss(self.run.loss)).numeric_targets:
            raise InputError(f"canary: got {kind!r}; the {loss.name} loss has no labels.", remedy="take random_direction.")
        if kind == "mislabelled":
            inside = mislabelled(data, position, classes=self.classes or 2)
            return self._pair(inside, f"record {position} with the next label", natural=record_of(data, position))
        return self._pair(blank(data, label=self._target(True)), "blank record")

    def _pair(self, inside: Record, words: str, natural: Record | None = None) -> Canary:
        if self.run.neighbours == "replace_one":
            outside = (inside[0], self._target(False)) if natural is None else natural
            return Canary(inside, outside, f"{words}, against {'the opposite target' if natural is None else 'its own label'}")
        if require_linear_loss(self.run.loss).intercept:
            raise InputError(
                f"neighbours: got {self.run.neighbours}; with an intercept no record is without gradient.",
                source="run.neighbours and run.loss.intercept",
                remedy="audit replace_one, or a model without intercept.",
            )
        return Canary(inside, (np.zeros_like(inside[0]), self._target(False)), f"{words}, against a record without gradient")

    def _target(self, inside: bool) -> float | int:
        loss = require_linear_loss(self.run.loss)
        if loss.numeric_targets:
            return (_FAR if inside else -_FAR) * loss.slope_bound
        return int(inside)

    def _start(self, canaries: Sequence[Canary]) -> FloatArray:
        if self.initial is not None:
            return np.asarray(self.initial, dtype=np.float64)
        rows = _tensors(self.run, [canary.inside for canary in canaries])[0].shape[1]
        return np.zeros((rows, self._loss.outputs))

    @property
    def _loss(self) -> LinearLoss:
        return require_linear_loss(self.run.loss).for_classes(self.classes)

    def _gradients(self, records: Sequence[Record], parameters: FloatArray) -> FloatArray:
        rows, targets = _tensors(self.run, records)
        scores = rows @ torch.tensor(parameters)
        reach = None
        if descends_envelope(self.run):
            assert self.run.clip_norm is not None
            reach = self.run.clip_norm / torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        residuals = residuals_of(self._loss, scores, targets, reach).numpy()
        gradients = np.einsum("md,mk->mdk", rows.numpy(), residuals)
        norms = np.linalg.norm(gradients, axis=(1, 2), keepdims=True)
        return gradients if self.run.clip_norm is None else gradients * np.minimum(1.0, self.run.clip_norm / np.maximum(norms, 1e-300))

    def _least_moved(self, data: Data, seed: int) -> int:
        """The feature whose weights simulated trainings without the canary, which are not scored afterwards, move least."""
        # Their seeds are not those of the game, which come from the plain seed.
        seeds = np.random.SeedSequence([seed, 3]).generate_state(_SIMULATIONS, np.uint64)
        moved = np.stack([self(data, int(number)).model.weights for number in seeds])
        if self.initial is not None:
            moved = moved - self.initial[: moved.shape[1]]
        return int(np.square(moved).sum(axis=(0, 2)).argmin())


def _displacements(start: FloatArray, directions: FloatArray, trained: Fitted[LinearPredictor]) -> FloatArray:
    r"""$-\langle\theta_T - \theta_0, e_i\rangle$ for each canary; start of shape (d, k), directions of shape (m, d, k)."""
    model = trained.model
    rows = model.weights if len(start) == len(model.weights) else np.vstack([model.weights, model.intercept])
    return -np.einsum("mdk,dk->m", directions, rows - start)


def _loss_gaps(canaries: Sequence[Canary], trained: Fitted[LinearPredictor]) -> FloatArray:
    """How much smaller the loss of each canary is than that of the record in its place."""
    model, losses = trained.model, list[FloatArray]()
    for records in ([canary.outside for canary in canaries], [canary.inside for canary in canaries]):
        rows, targets = _tensors(trained.run, records)
        whole = np.vstack([model.weights, model.intercept])[: rows.shape[1]]
        losses.append(losses_of(model.loss, rows @ torch.tensor(whole), targets).numpy())
    return losses[0] - losses[1]


def _tensors(run: Run, records: Sequence[Record]) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as in training, and targets as a column."""
    loss = require_linear_loss(run.loss)
    table: Any = np.stack([np.asarray(record[0], dtype=np.float64) for record in records])
    rows = prepare_features(table, feature_norm=loss.feature_norm, intercept=loss.intercept, dtype=torch.float64, device=_CPU).rows
    targets = torch.tensor(np.array([[record[1]] for record in records]))
    return rows, targets.to(torch.float64 if loss.scalar else torch.int64)
