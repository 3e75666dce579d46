"""Clipper: sum of per-record clipped gradients of any module, by one forward and one backward pass."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from lethe.errors import InputError, RecordByRecordWarning
from lethe.train.clipping.checks.graphs import Graph, Node, nodes_of
from lethe.train.clipping.checks.leaves import refuse_other_leaves, refuse_other_parameters
from lethe.train.clipping.checks.self_check import SelfCheck
from lethe.train.clipping.checks.steadiness import unsteady_records
from lethe.train.clipping.checks.surroundings import eagerly, refuse_compiled, surroundings
from lethe.train.clipping.contributions import backward, backward_in_turn
from lethe.train.clipping.decisions import Decisions
from lethe.train.clipping.groups import METHODS, Group, as_groups, group_of, total_bound
from lethe.train.clipping.hooks import Recording
from lethe.train.clipping.records.alone import Alone
from lethe.train.clipping.records.sum_error import shorter
from lethe.train.clipping.records.sums import ClippedSums
from lethe.train.clipping.schedule import Depth
from lethe.train.clipping.survey import Survey, Surveys
from lethe.train.clipping.unfollowed import PER_LAYER, RECORD_BY_RECORD, UnfollowedError
from lethe.train.clipping.units import Units
from lethe.train.clipping.workspace import Workspace, limit_of
from lethe.train.core.declared import ALONE
from lethe.train.model_state.named_parts import NamedParts, Parts

_DOUBTS = 3  # batches that a self-check could not follow, after which none is tried any more


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
        way: "per layer", by the layers' rules; or "record by record": every recording is of one record, and its gradient is the one of
            plain autograd, which is slower, and right for models that the rules cannot follow.
        gradient_memory: how many bytes the formed gradients of a batch's records may take at a time; 0: none is kept, each is formed twice.
            None: 8 MiB (on a GPU 64), and twice the inputs and output gradients of layers that the backward pass has let go of by then.
        margin: the share of C that is left for what float64 may put the sums off, see `margin_of`.

    Attributes:
        groups: of parameters.
        method: the Method.
        way: as given, or as `one_by_one` made it.
        batches_alone: how many batches were computed record by record.
        verified: None before the self-check has compared two records with gradients; then what it could not check, which is warned of
            as well, or "checked". No check can see what no gradient and no output shows: a loss that mixes records through detached
            values (losses / losses.detach().mean(); `lethe.train.fit` asks the loss itself), a model that does so in parts that are
            called one by one, between tokens whose embedding is no nn.Embedding weaker than rounding, or in a branch that no checked
            batch took.

    Raises:
        InputError: see `survey` and `as_groups`.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        clip_norm: float | Sequence[Group] = 1.0,
        method: str = "clip",
        verify: bool = True,
        way: str = PER_LAYER,
        gradient_memory: int | None = None,
        margin: float = 0.0,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InputError(f"model: got {type(model).__name__}; it needs a torch.nn.Module.")
        if method not in METHODS:
            raise InputError(f"method: got {method!r}; it needs one of {', '.join(METHODS)}.")
        self.model = model
        if way not in (PER_LAYER, RECORD_BY_RECORD):
            raise InputError(f"way: got {way!r}; it needs {PER_LAYER!r} or {RECORD_BY_RECORD!r}.")
        self.groups = as_groups(clip_norm)
        self.way = way
        self.method = METHODS[method]
        self._sums = ClippedSums(shorter(self.groups, margin), self.method)
        self._decisions = Decisions()
        self._check = SelfCheck(model, self._decisions, verify=verify, backward=partial(backward, keep=True))
        self._alone, self._doubts, self._layered = Alone(model, verify=verify), 0, False
        self._lone: Survey | None = None
        self.batches_alone = 0
        self._workspace = Workspace(limit_of(gradient_memory))
        self._recording: Recording | None = None
        self.parts, self._surveys = NamedParts(model), Surveys(model)
        self.precision = torch.float64
        self._open = False
        for name in self._surveys.of(self.parts.now()).names.values():
            group_of(name, self.groups)

    @property
    def bound(self) -> float:
        """C: the largest norm of one record's contribution to a sum."""
        return total_bound(self.groups)

    @property
    def verified(self) -> str | None:
        """See the class."""
        return ALONE if self._alone.records and self._check.verdict is None else self._check.verdict

    @property
    def measured(self) -> bool | None:
        """Whether any record had a gradient that could be measured; None before there were records. Private, as `last_norms` is."""
        return self._sums.measured

    @property
    def contributed(self) -> bool | None:
        """The same, of gradients that were not 0 either."""
        return self._sums.contributed

    @property
    def last_norms(self) -> Tensor | None:
        """Of the gradients before clipping, in the last `backward`: shape (B,), or (B, groups); of units, one each; None before any."""
        return self._sums.last_norms

    @property
    def formed(self) -> str | None:
        """How records' gradients were formed so far: "per layer", "record by record", or both; None before there were any."""
        ways = [way for way, used in ((PER_LAYER, self._layered), (RECORD_BY_RECORD, self._alone.records)) if used]
        return " and ".join(ways) or None

    @property
    def verifies(self) -> bool:
        """Whether any batch is looked at."""
        return self._check.verifies

    @property
    def checking(self) -> bool:
        """Whether the batch that was recorded last is one of those that the self-check looks at."""
        return self._recording is not None and self._check.depth is not Depth.NOT

    @contextmanager
    def recording(self, *, records: int | None = None, parts: Parts | None = None) -> Generator[None]:
        """Within: calls of the model are recorded for `backward`; a recording that was not used is dropped.

        Args:
            records: B, where the first tensor that the model is given does not have the records along its first dimension, or where
                only parts of the model are called.
            parts: of the model as they are now, of a look at its `parts`, where they are at hand.
        Raises:
            InputError: a layer is used in a way that its records cannot be told apart.
        """
        if records is not None and (isinstance(records, bool) or not isinstance(records, int) or records < 0):
            raise InputError(f"records: got {records!r}; it needs a whole number >= 0.")
        if self._open:
            raise InputError("recording: another recording of this clipper is open.", remedy="leave its block first.")
        found, self._lone = self._surveys.of(self.parts.looked() if parts is None else parts), None
        if self.way == RECORD_BY_RECORD:
            with self._recording_alone(found):
                yield
            return
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

    @contextmanager
    def _recording_alone(self, found: Survey) -> Generator[None]:
        self._open = True
        try:
            with eagerly(), self._alone.recording():
                yield
            self._lone = found
        finally:
            self._open = False

    def all_or_nothing(self) -> AbstractContextManager[None]:
        """Within: several recordings that count only together; what they added is dropped where one fails."""
        return self._sums.all_or_nothing()

    @contextmanager
    def one_by_one(self, reason: UnfollowedError) -> Generator[None]:
        """Within, and from then on if another batch would be refused too: every recording is of one record; it is said in a warning.

        Args:
            reason: why the records of a batch cannot be told apart.
        """
        self._doubts += 1
        lasting = reason.lasting or self._doubts == _DOUBTS
        if lasting or self._doubts == 1:
            warnings.warn(
                f"the model is trained record by record{'' if lasting else ' in this batch'}, as exact and slower: {reason.what}",
                RecordByRecordWarning,
                stacklevel=5,
            )
        self.way = RECORD_BY_RECORD
        try:
            yield
        finally:
            self.way = RECORD_BY_RECORD if lasting else PER_LAYER

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
        if self._lone is not None:
            if units is not None:
                remedy = "record the rows of a unit in one block, one after another, and hand over the mean of their losses."
                raise InputError("units: record by record a recording has one loss.", remedy=remedy)
            self._backward_alone(losses, counted)
            return
        recording = self._take_recording(losses)
        losses, counted = recording.tape.with_records(losses), _counted(counted, losses)
        if units is not None:
            losses = units.means(losses, counted)
        if not len(losses):
            self._sums.add_none(losses)
            return
        total = losses.sum() if counted is None else torch.where(counted, losses, 0.0).sum()
        checking = recording.attached
        device = losses.device.type
        with torch.autocast(device, enabled=False), self._workspace.open(), eagerly():
            self._check.losses(losses, counted, recording)
            nodes = Graph(nodes_of(losses))
            refuse_other_leaves(nodes, recording)
            refuse_compiled(nodes)
            unsteady = unsteady_records(nodes, len(losses))
            if not checking:
                self._check.late(nodes, losses, counted, recording)
            if checking or units is not None:
                nodes.release()
                parts = backward(recording, total, keep=checking)
            else:
                parts = backward_in_turn(recording, total, nodes)
            if checking:
                self._check.gradients(parts, losses, counted, recording)
            with torch.no_grad():
                size = losses.detach()
                if units is not None:
                    parts, unsteady = units.grouped(parts), None if unsteady is None else units.any(unsteady)
                    size = units.sizes.to(losses)
                self._sums.add(parts, size, recording.found.names, counted=counted, unsteady=unsteady)
        self._layered = True

    def _backward_alone(self, losses: Tensor, counted: Tensor | None) -> None:
        found, self._lone = self._lone, None
        assert found is not None
        losses = self._checked(losses, 1)
        counted = _counted(counted, losses)
        with torch.autocast(losses.device.type, enabled=False), self._workspace.open():
            refuse_other_parameters(nodes := list(nodes_of(losses)), found.names)
            unsteady = unsteady_records(nodes, 1)
            parts = self._alone.gradients(losses, found.names)
            with torch.no_grad():
                self._sums.add(parts, losses.detach(), found.names, counted=counted, unsteady=unsteady)

    def take(self) -> dict[nn.Parameter, Tensor]:
        """The sums since the last `take`, float64, for every trained parameter, 0 where nothing came; starts anew."""
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        return self._sums.take(trained)

    def _take_recording(self, losses: Tensor) -> Recording:
        recording, self._recording = self._recording, None
        if self._open or recording is None:
            what = "the recording is still open" if self._open else "nothing was recorded since the last backward"
            raise InputError(
                f"backward: {what}.", remedy="compute the outputs within a recording (with engine.recording():), then call backward once."
            )
        self._checked(losses, recording.records)
        self.precision = recording.precision
        if recording.records is None:
            recording.records = len(losses)
        return recording

    def _checked(self, losses: Tensor, records: int | None) -> Tensor:
        if not isinstance(losses, Tensor) or losses.dim() != 1 or not losses.is_floating_point():
            got = f"shape {tuple(losses.shape)}, {losses.dtype}" if isinstance(losses, Tensor) else type(losses).__name__
            raise InputError(
                f"losses: got {got}; it needs shape (B,), one loss a record: a mean hides the records.",
                remedy='compute the loss with reduction="none", and average over positions within a record only; of a model of '
                "transformers: lethe.integrations.transformers.record_losses(model).",
            )
        if records is not None and len(losses) != records:
            alone = self.way == RECORD_BY_RECORD
            raise InputError(
                f"losses: got {len(losses)} for {records} record{'s' if records != 1 else ''}.",
                source="training record by record" if alone else "the first dimension of the first tensor that the model was given",
                remedy="give batches of one record: physical_size=1."
                if alone
                else "give one loss a record; of positions or tokens that were flattened, the mean over each record's own: "
                "losses.reshape(records, -1).mean(1).",
            )
        if len(losses) and not losses.requires_grad:
            raise InputError("losses: they do not require grad.", remedy="compute them from the outputs, with gradients enabled.")
        return losses


def _counted(counted: Tensor | None, losses: Tensor) -> Tensor | None:
    if counted is None:
        return None
    if not isinstance(counted, Tensor) or counted.dtype != torch.bool or counted.shape != losses.shape:
        got = f"shape {tuple(counted.shape)}, {counted.dtype}" if isinstance(counted, Tensor) else type(counted).__name__
        raise InputError(f"counted: got {got}; it needs a bool tensor of shape {tuple(losses.shape)}.")
    return counted.to(losses.device)
