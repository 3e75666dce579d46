"""Clipper: sum of per-record clipped gradients of any module, by one forward and one backward pass."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clipping.checks.graphs import Node, nodes_of
from lethe.train.clipping.checks.leaves import refuse_other_leaves
from lethe.train.clipping.checks.self_check import SelfCheck
from lethe.train.clipping.checks.steadiness import unsteady_records
from lethe.train.clipping.checks.surroundings import surroundings
from lethe.train.clipping.contributions import backward
from lethe.train.clipping.decisions import Decisions
from lethe.train.clipping.groups import METHODS, Group, as_groups, clip_weights, group_of, total_bound
from lethe.train.clipping.hooks import Recording
from lethe.train.clipping.rules.parts import Part
from lethe.train.clipping.rules.rounding import full_precision
from lethe.train.clipping.rules.rule import wide
from lethe.train.clipping.schedule import Depth
from lethe.train.clipping.survey import survey
from lethe.train.clipping.units import Units
from lethe.train.clipping.workspace import Workspace


class Clipper:
    r"""Sums $\sum_i w_i \nabla \ell_i$ with $\|w_i \nabla \ell_i\| \le C$, of the trained parameters of a model.

    The model stays as it is: nothing is wrapped, renamed or left on it. Hooks are on its layers only within `recording`.

        clipper = Clipper(model, clip_norm=1.0)
        with clipper.recording():
            outputs = model(batch)
        clipper.backward(loss_function(outputs, targets, reduction="none"))
        sums = clipper.take()

    A record whose gradient is not finite, or left to rounding by attention to huge numbers (`unsteady`), contributes 0, so that every
    contribution is a function of its record alone.

    Args:
        model: any module whose layers keep the records along the first dimension (or along the second, where a layer says
            batch_first=False), and whose records do not meet.
        clip_norm: C > 0; or groups of parameters, each with a norm of its own, and then C is the root of the sum of their squares.
        method: "clip", "normalise" or "automatic", see METHODS.
        verify: check the first batch against plain autograd and against records alone and in other company, and again where the layers
            in training mode or the trained parameters are others, or the batch is half as large again as any checked; and glance at
            batches 2, 4, 8 and so on and at some others, at random. Leave it out only for a model that passed it: a model that mixes
            records, or in whose first batch another dimension is as long as the batch, is found out by nothing else.

    Attributes:
        groups: of parameters.
        method: the Method.
        verified: None before the self-check has compared two records with gradients; then what it could not check, which is warned of
            as well, or "checked". No check can see what no gradient and no output shows: a loss that mixes records through detached
            values (losses / losses.detach().mean(); `lethe.train.fit` asks the loss itself), a model that does so in parts that are
            called one by one, between tokens whose embedding is no nn.Embedding weaker than rounding, or in a branch that no checked
            batch took.
        last_norms: of the gradients before clipping, as computed in the last `backward`: shape (B,), or (B, groups); of units, one each.

    Raises:
        InputError: see `survey` and `as_groups`.
    """

    def __init__(self, model: nn.Module, *, clip_norm: float | Sequence[Group] = 1.0, method: str = "clip", verify: bool = True) -> None:
        if not isinstance(model, nn.Module):
            raise InputError(f"model: got {type(model).__name__}; it needs a torch.nn.Module.")
        if method not in METHODS:
            raise InputError(f"method: got {method!r}; it needs one of {', '.join(METHODS)}.")
        self.model = model
        self.groups = as_groups(clip_norm)
        self.method = METHODS[method]
        self.last_norms: Tensor | None = None
        self._contributed: Tensor | None = None
        self._sums: dict[nn.Parameter, Tensor] = {}
        self._decisions = Decisions()
        self._check = SelfCheck(model, self._decisions, verify=verify)
        self._workspace = Workspace()
        self._recording: Recording | None = None
        self._open = False
        for name in survey(model).names.values():
            group_of(name, self.groups)

    @property
    def bound(self) -> float:
        """C: the largest norm of one record's contribution to a sum."""
        return total_bound(self.groups)

    @property
    def verified(self) -> str | None:
        """See the class."""
        return self._check.verdict

    @property
    def contributed(self) -> bool | None:
        """Whether any record had a gradient that could be measured; None before there were records. Private, as `last_norms` is."""
        return None if self._contributed is None else bool(self._contributed)

    @property
    def verifies(self) -> bool:
        """Whether any batch is looked at."""
        return self._check.verifies

    @property
    def checking(self) -> bool:
        """Whether the batch that was recorded last is one of those that the self-check looks at."""
        return self._recording is not None and self._check.depth is not Depth.NOT

    @contextmanager
    def recording(self, *, records: int | None = None) -> Generator[None]:
        """Within: calls of the model are recorded for `backward`; a recording that was not used is dropped.

        Args:
            records: B, where the first tensor that the model is given does not have the records along its first dimension, or where
                only parts of the model are called.
        Raises:
            InputError: a layer is used in a way that its records cannot be told apart.
        """
        if records is not None and (isinstance(records, bool) or not isinstance(records, int) or records < 0):
            raise InputError(f"records: got {records!r}; it needs a whole number >= 0.")
        if self._open:
            raise InputError("recording: another recording of this clipper is open.", remedy="leave its block first.")
        found = survey(self.model)
        recording = Recording(
            self.model,
            found,
            self._decisions,
            records=records,
            attached=self._check.begin(found, records) is Depth.THOROUGH,
            looked_at=lambda counted: self._check.begun(found, counted),
            inspect=self._check.call,
        )
        self._recording, self._open = recording, True
        try:
            with surroundings():
                recording.open()
                yield
        except BaseException:
            self._recording = None
            raise
        finally:
            recording.close()
            self._open = False

    def before_layers(self, losses: Tensor) -> list[Node]:
        """The nodes of the graph between losses and the layers that were recorded last, before `backward` lets go of it."""
        calls = [] if self._recording is None else [call for made in self._recording.calls.values() for call in made]
        return list(nodes_of(losses, (edge.node for call in calls for edge in call.edges if edge is not None)))

    def backward(self, losses: Tensor, counted: Tensor | None = None, units: Units | None = None) -> None:
        """Add the clipped gradients of the recorded records to the sums.

        Call it once after each recording; several micro-batches of one step give the same sums as the whole batch.

        Args:
            losses: shape (B,), one loss a record, not averaged: losses[i] must depend on record i alone.
            counted: shape (B,), bool; False for padding that is no record and adds nothing. None: all are records.
            units: the rows that are clipped as one, by the gradient of the mean of their losses; None: each record by itself. All rows of
                a unit must be in one call.
        Raises:
            InputError: the losses have another shape or come from elsewhere, or the self-check fails.
            HypothesisError: the forward pass wrote what it saw into a buffer or a frozen parameter; looked for in checked batches.
        """
        recording = self._take_recording(losses)
        losses, counted = recording.tape.with_records(losses), _counted(counted, losses)
        if units is not None:
            losses = units.means(losses, counted)
        if not len(losses):
            self.last_norms = losses.new_zeros((0,) if len(self.groups) == 1 else (0, len(self.groups)), dtype=torch.float64)
            return
        total = losses.sum() if counted is None else torch.where(counted, losses, 0.0).sum()
        checking = recording.attached
        device = losses.device.type
        with torch.autocast(device, enabled=False), self._workspace.open():
            self._check.losses(losses, counted, recording)
            nodes = list(nodes_of(losses))
            refuse_other_leaves(nodes, recording)
            unsteady = unsteady_records(nodes, len(losses))
            del nodes
            parts = backward(recording, total, keep=checking)
            if checking:
                self._check.gradients(parts, losses, counted, recording)
            with torch.no_grad():
                if units is not None:
                    parts, unsteady = units.grouped(parts), None if unsteady is None else units.any(unsteady)
                self._add(parts, counted, unsteady, losses.detach() if units is None else units.sizes.to(losses), recording)

    def take(self) -> dict[nn.Parameter, Tensor]:
        """The sums since the last `take`, float32 or better, for every trained parameter, 0 where nothing came; starts anew."""
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        if lost := len(self._sums.keys() - set(trained)):
            raise InputError(
                f"take: {lost} parameters have a sum and are no longer trained parameters of the model.",
                source="requires_grad, or the parameters themselves, changed since the last backward",
                remedy="freeze, unfreeze or replace parameters between take and the next recording only.",
            )
        sums, self._sums = self._sums, {}
        return {parameter: sums[parameter] if parameter in sums else torch.zeros_like(wide(parameter.detach())) for parameter in trained}

    def _take_recording(self, losses: Tensor) -> Recording:
        recording, self._recording = self._recording, None
        if self._open or recording is None:
            what = "the recording is still open" if self._open else "nothing was recorded since the last backward"
            raise InputError(
                f"backward: {what}.", remedy="compute the outputs within `with clipper.recording():`, then call backward once."
            )
        if not isinstance(losses, Tensor) or losses.dim() != 1 or not losses.is_floating_point():
            got = f"shape {tuple(losses.shape)}, {losses.dtype}" if isinstance(losses, Tensor) else type(losses).__name__
            raise InputError(
                f"losses: got {got}; it needs shape (B,), one loss a record: a mean hides the records.",
                remedy='compute the loss with reduction="none", and average over positions within a record only.',
            )
        if recording.records is None:
            recording.records = len(losses)
        if len(losses) != recording.records:
            raise InputError(
                f"losses: got {len(losses)} for {recording.records} records.",
                source="the first dimension of the first tensor that the model was given",
                remedy="give one loss a record, or name the number of records: recording(records=...).",
            )
        if len(losses) and not losses.requires_grad:
            raise InputError("losses: they do not require grad.", remedy="compute them from the outputs, with gradients enabled.")
        return recording

    def _add(
        self, parts: dict[nn.Parameter, Part], counted: Tensor | None, unsteady: Tensor | None, losses: Tensor, recording: Recording
    ) -> None:
        names = recording.found.names
        members: list[list[nn.Parameter]] = [[] for _ in self.groups]
        for parameter in parts:
            members[group_of(names[parameter], self.groups)].append(parameter)
        with full_precision():
            squares = [_squared([parts[parameter] for parameter in group], losses) for group in members]
            kept = torch.stack(squares).sum(0).isfinite()
            kept = kept if unsteady is None else kept & ~unsteady
            kept = kept if counted is None else kept & counted
            added = self._weighed(parts, members, squares, kept)
        # All at once: a step that failed half-way and is tried again must not count a record twice.
        self._sums = {**self._sums, **added}
        if counted is None or bool(counted.any()):
            self._contributed = kept.any() if self._contributed is None else self._contributed | kept.any()
        norms = torch.stack(squares, dim=1).sqrt()
        self.last_norms = norms[:, 0] if len(self.groups) == 1 else norms

    def _weighed(
        self, parts: dict[nn.Parameter, Part], members: list[list[nn.Parameter]], squares: list[Tensor], kept: Tensor
    ) -> dict[nn.Parameter, Tensor]:
        """The sums with the kept records of this batch added, of its parameters."""
        sums: dict[nn.Parameter, Tensor] = {}
        whole = torch.stack(squares).sum(0)
        for group, chosen, squared in zip(self.groups, members, squares, strict=True):
            if not chosen:
                continue
            coarse = torch.float64 if all(parameter.dtype == torch.float64 for parameter in chosen) else torch.float32
            numbers = sum(parameter.numel() for parameter in chosen)
            slack = _slack([parts[parameter] for parameter in chosen])
            weights = clip_weights(squared, group, self.method, numbers=numbers, dtype=coarse, slack=slack, whole=whole)
            weights = torch.where(kept, weights, 0.0)
            for parameter in chosen:
                added = parts.pop(parameter).weighted_sum(weights).reshape(parameter.shape)
                sums[parameter] = added.add_(self._sums[parameter]) if parameter in self._sums else added
        return sums


def _squared(parts: list[Part], losses: Tensor) -> Tensor:
    zeros = torch.zeros_like(losses, dtype=torch.float64)
    return torch.stack([zeros, *(part.squared_norms().to(zeros) for part in parts)]).sum(0).clamp(min=0)


def _slack(parts: list[Part]) -> Tensor | None:
    known = [slack for part in parts if (slack := part.slack()) is not None]
    return torch.stack(known).square().sum(0).sqrt() if known else None


def _counted(counted: Tensor | None, losses: Tensor) -> Tensor | None:
    if counted is None:
        return None
    if not isinstance(counted, Tensor) or counted.dtype != torch.bool or counted.shape != losses.shape:
        got = f"shape {tuple(counted.shape)}, {counted.dtype}" if isinstance(counted, Tensor) else type(counted).__name__
        raise InputError(f"counted: got {got}; it needs a bool tensor of shape {tuple(losses.shape)}.")
    return counted.to(losses.device)
