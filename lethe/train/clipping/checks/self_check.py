"""The clipper's self-check: when it runs, what it compares, and what it reports."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clipping.checks.first_batch import FirstBatch
from lethe.train.clipping.checks.forward_checks import ALIKE, ForwardChecks
from lethe.train.clipping.checks.gradient_checks import check_gradients
from lethe.train.clipping.checks.graphs import Node, nodes_of
from lethe.train.clipping.checks.replaced_batch import Given
from lethe.train.clipping.checks.replay import Backward, answers_of_another_size, replay
from lethe.train.clipping.checks.scaled_losses import check_half, check_scaled
from lethe.train.clipping.checks.shared_numbers import shared_numbers
from lethe.train.clipping.checks.signature import reorders, shapes_of, signature
from lethe.train.clipping.decisions import Decisions
from lethe.train.clipping.hooks import Recording, form_of_call
from lethe.train.clipping.rules.parts import Part
from lethe.train.clipping.schedule import Depth, Schedule, outgrown, state_of
from lethe.train.clipping.survey import Survey
from lethe.train.model_state.untouched_state import UntouchedState

_PATIENCE = 8  # checked batches in which a parameter's gradient may be 0, or records all alike, before that is said
_MOST = 4096  # operations with their inputs that are remembered; no honest model has so many
_PARTS = "only parts of the model were called"


class SelfCheck:
    """Checks some of a clipper's batches for records that influence one another.

    Args:
        model: of the clipper.
        decisions: of the clipper; forgotten where a check fails.
        verify: False: nothing is looked at.
        backward: see `replay`.

    Attributes:
        verdict: None before two records with gradients were compared; then "checked", or what was not.
        depth: how closely the batch that is recorded, or was recorded last, is looked at.
    """

    def __init__(self, model: nn.Module, decisions: Decisions, *, verify: bool, backward: Backward) -> None:
        self.verdict: str | None = None if verify else "not checked"
        self.depth = Depth.NOT
        self._model, self._decisions, self._verify = model, decisions, verify
        self._backward = backward
        self._schedule = Schedule()
        self._forward, self._first = ForwardChecks(model), FirstBatch(model)
        self._state: UntouchedState | None = None
        self._found: Survey | None = None
        self._records: int | None = None
        self._unchecked: str | None = None
        self._graph: frozenset[Hashable] = frozenset()
        self._numbers: frozenset[Hashable] | None = None
        self._changes = 0
        self._missing: dict[Hashable, str | None] = {}
        self._heard: set[nn.Parameter] = set()
        self._waits: dict[Hashable, tuple[int, Hashable]] = {}
        """Kinds of calls whose outputs were compared in a state that is not passed yet, since gradients of 0 told nothing; of how many
        records, and with which numbers in the model: what they hid shows with others."""
        self._patience = _PATIENCE
        self._warned: str | None = None

    @property
    def verifies(self) -> bool:
        """Whether any batch is looked at."""
        return self._verify

    def begin(self, found: Survey, records: int | None) -> Depth:
        """Begin a recording: decide how thoroughly it is checked, as far as B is known."""
        self._unchecked, self._state, self._found = _PARTS, None, found
        if self._verify:
            self._first.begin()
        # Before the model's call where B can be guessed: within it, somebody may have put other parameters in for the time being.
        if self._verify and self._schedule.due(found, records or self._records):
            self._state = UntouchedState(self._model, trained=True)
        self.depth = self._schedule.due(found, records) if self._verify else Depth.NOT
        return self.depth

    def begun(self, found: Survey, records: int) -> Depth:
        """Decide how thoroughly the recording is checked, now that the model is called and B is known."""
        self.depth = self._schedule.due(found, records) if self._verify else Depth.NOT
        self._state = (self._state or UntouchedState(self._model, trained=True)) if self.depth else None
        return self.depth

    def call(self, records: int, args: tuple[Any, ...], kwargs: dict[str, Any], precision: torch.dtype) -> None:
        """Check a call of the model in a recording that is looked at.

        Args:
            records: B.
            args, kwargs: of the call.
            precision: the coarsest arithmetic that the model computed in.
        Raises:
            InputError: records mix.
            HypothesisError: the model remembers records.
        """
        given = Given(args=args, kwargs=kwargs, records=records, precision=precision)
        with self._doubted():
            if self.depth is Depth.GLANCE:
                self._forward.glance(given)
                return
            assert self._found is not None
            kind = state_of(self._found), form_of_call(args, kwargs)
            waits, numbers = self._waits.get(kind), None if self._state is None else self._state.numbers
            if waits is not None and not outgrown(records, waits[0]) and numbers is not None and waits[1] == numbers:
                self._forward.glance(given)
                self._unchecked = None if self._unchecked == _PARTS else self._unchecked
                return
            with self._forward.calls(given) as rewind:
                told, graph = answers_of_another_size(self._model, self._found, given, rewind)
                self._decisions.prove(told)
                self._graph |= graph
                found = self._forward.thorough(given, self._first)
            known = (self._unchecked, *found) if self._unchecked is not None and self._unchecked != _PARTS else found
            self._unchecked = "; ".join(dict.fromkeys(reason for reason in known if reason is not None)) or None
            if not any(found) and self._first.over:
                self._waits[kind] = records, numbers

    def losses(self, losses: Tensor, counted: Tensor | None, recording: Recording) -> None:
        """Check losses before the backward pass, while their graph is still there.

        Args:
            losses: shape (B,).
            counted: which records count, shape (B,); None: all.
            recording: of the forward pass.
        Raises:
            InputError: records mix.
            HypothesisError: the forward pass wrote what it saw into a buffer or a parameter.
        """
        self._schedule.over(len(losses), self.depth)
        self._records = len(losses)
        state, self._state = self._state, None
        if state is not None:
            state.refuse_changes()
        if self.depth is Depth.GLANCE:
            with self._doubted():
                check_half(losses, counted, recording)

    def late(self, nodes: Sequence[Node], losses: Tensor, counted: Tensor | None, recording: Recording) -> None:
        """Check a batch that is not looked at thoroughly, if something in its graph is new, or takes records in another order.

        Args:
            nodes: of the graph from the losses to its leaves.
            losses: shape (B,).
            counted: which records count, shape (B,); None: all.
            recording: of the forward pass.
        Raises:
            InputError: records mix.
            UnfollowedError: they stand in another order somewhere, or the rules tell other gradients than plain autograd.
        """
        if not self._verify or len(losses) < 2:
            return
        found = signature(nodes, recording)
        new = not found <= self._graph or self._decisions.unproved or self._measured_anew(nodes, recording, len(losses))
        if not new and not reorders(nodes, recording):
            return
        with self._doubted():
            check_scaled(losses, counted, recording)
            if not new:
                return
            for args, kwargs in recording.asked:
                self._again(Given(args=args, kwargs=kwargs, records=len(losses), precision=recording.precision), recording.found)
        self._graph = found | self._graph if len(self._graph) < _MOST else found

    def _measured_anew(self, nodes: Sequence[Node], recording: Recording, records: int) -> bool:
        """Whether a number that scales all records alike is a new one, as where the model divides by a count of the batch, or a layer is
        given rows of a new shape, as where the model or a collate function cuts or pads to the longest of a batch.

        Either may be harmless: the first such batches are looked at, then those number 16, 32 and so on among them.
        """
        numbers = frozenset((*shared_numbers(nodes, records), *shapes_of(recording, records)))
        if self._numbers is None or numbers <= self._numbers:
            self._numbers = numbers | (self._numbers or numbers)
            return False
        self._numbers = numbers | self._numbers if len(self._numbers) < _MOST else numbers
        self._changes += 1
        return self._changes <= _PATIENCE or self._changes & (self._changes - 1) == 0

    def _again(self, given: Given, found: Survey) -> None:
        """What the first batch was asked, of a later one, whose own forward pass is over."""
        if not given.rows():
            return
        with self._forward.calls(given) as rewind:
            self._decisions.prove(answers_of_another_size(self._model, found, given, rewind)[0])
            reasons = [*self._forward.thorough(given)]
        reasons = [*reasons, replay(self._model, found, given.few(), self._forward.outputs.beside, self._decisions, self._backward)]
        late = "; ".join(reason for reason in reasons if reason is not None and reason != ALIKE)
        if late:
            self._missing["late"] = f"in a later batch, single records were not: {late}"
            self._tell()

    def gradients(self, parts: Mapping[nn.Parameter, Part], losses: Tensor, counted: Tensor | None, recording: Recording) -> None:
        """Check gradients after the backward pass of a recording that is looked at thoroughly.

        Args:
            parts: what the rules found of each parameter's gradients.
            losses: shape (B,).
            counted: which records count, shape (B,); None: all.
            recording: of both passes.
        Raises:
            InputError: the parts are not what plain autograd tells, or records mix.
        """
        with self._doubted():
            seen = check_gradients(parts, losses, counted, recording, summed=True)
            recording.told.clear()
        nodes = list(nodes_of(losses))
        self._graph |= signature(nodes, recording)
        self._numbers = frozenset((*shared_numbers(nodes, len(losses)), *shapes_of(recording, len(losses))))
        if seen.records < 2:
            return
        self._heard |= seen.heard
        silent = [recording.found.names[parameter] for parameter in seen.silent - self._heard]
        telling = not silent and self._unchecked != ALIKE
        self._patience -= not telling
        if telling or self._patience <= 0:
            self._schedule.passed(recording.found, len(losses))
            self._waits.clear()
        self._say(silent, state_of(recording.found))

    def _say(self, silent: list[str], state: Hashable) -> None:
        reasons = [] if self._unchecked is None else [f"single records were not: {self._unchecked}"]
        if silent:
            others = " and others" if len(silent) > 1 else ""
            reasons.append(f"of {min(silent)}{others} only gradients of 0 were seen")
        if self._missing.get(state, "") is not None:
            self._missing[state] = "; ".join(reasons) or None
        self._tell()

    def _tell(self) -> None:
        missing = dict.fromkeys(reason for reason in self._missing.values() if reason is not None)
        self.verdict = "; ".join(("gradients checked", *missing)) if missing else "checked"
        if missing and self.verdict != self._warned and (self._unchecked not in (None, ALIKE) or self._patience <= 0):
            self._warned = self.verdict
            warnings.warn(f"the clipper could not check everything: {self.verdict}.", stacklevel=5)

    @contextmanager
    def _doubted(self) -> Generator[None]:
        """Within: where a check fails, nothing that was settled or checked before counts any more."""
        try:
            yield
        except InputError:
            self._decisions.forget()
            self._schedule.forget()
            self._missing.clear()
            self._waits.clear()
            self._graph = frozenset()
            self.verdict = None
            raise
