"""LetheAccountant: a dp_accounting accountant for releases of Lethe's runs together with dp_accounting's own events.

Users compose events into it and ask for epsilon. A guarantee for the last iterate holds only while no earlier iterate is released, so such
a release (`IterateDpEvent`) makes it lapse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import attr
from dp_accounting import dp_event, privacy_accountant  # pyright: ignore[reportMissingTypeStubs]
from dp_accounting.privacy_accountant import NeighboringRelation  # pyright: ignore[reportMissingTypeStubs]

from lethe.accounting.certify import Verdict, evaluate_theorems, reasons_of
from lethe.accounting.dp_events import RELATIONS, UnknownEvent, guarantee_of, leaves_of, neighbours_of, whole
from lethe.calculus.any_guarantee import together
from lethe.calculus.domains import require_delta, require_nonnegative
from lethe.calculus.guarantees import GDP, Guarantee
from lethe.calculus.large_delta import delta_for
from lethe.errors import InputError
from lethe.run.known_fields import require_run
from lethe.run.participation import NOUNS
from lethe.run.run import Neighbours, Run

_Details = privacy_accountant.PrivacyAccountant.CompositionErrorDetails
# Below 2^53, so that counts are exact as floats too.
_MOST_STEPS = 10**15


def _is_run(_: object, __: object, value: Any) -> None:
    """An attrs validator: a run with noise."""
    if require_run(value, correlated=True).noise_multiplier is None:
        raise InputError(
            "run: noise_multiplier is null; this run has no noise yet.",
            remedy="set it, or let lethe.plan(run, epsilon=..., delta=...) find it.",
        )


def _is_label(_: object, __: object, value: object) -> None:
    """An attrs validator: a text that names the execution."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(
            f"label: got {value!r}; it needs a text that names one execution of the run.",
            source="the argument label",
            remedy="give each training its own name, such as its date and host; the same name only for the same execution.",
        )


def _text(value: Any) -> Any:
    """A label, also out of the tuple that `to_named_tuple` puts it into."""
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _number(value: Any) -> Any:
    """A step as Python's own whole number, where it is one of another kind."""
    number = whole(value)
    return value if number is None else number


def _is_step(event: IterateDpEvent, _: object, value: object) -> None:
    """An attrs validator: a step of the run before its last."""
    if event.run.total_steps == 1:
        raise InputError(
            f"step: got {value!r}; this run has one step, so it has no iterate before the last.",
            source="the argument step",
            remedy="use LastIterateDpEvent.",
        )
    if whole(value) is None or not 1 <= cast(int, value) < event.run.total_steps:
        raise InputError(
            f"step: got {value!r}; it needs a whole number from 1 to {event.run.total_steps - 1}, before the last of the run's steps.",
            source="the argument step",
            remedy="count steps from 1; for the last one use LastIterateDpEvent.",
        )


@attr.s(frozen=True, slots=True, auto_attribs=True)
class LastIterateDpEvent(dp_event.DpEvent):
    """The last iterate of one execution of a run is released, and no iterate before it.

    Stock accountants refuse it. `LetheAccountant` charges the run's certificate for it, and every iterate if an `IterateDpEvent` of the
    same label is composed too, before or after.

    Args:
        run: the run, with its noise.
        label: names the execution. Another training of the same run, with noise of its own, is another label.
    Raises:
        InputError: the run has no noise yet, or the label is empty.
    """

    run: Run = attr.ib(validator=_is_run)
    label: str = attr.ib(validator=_is_label, converter=_text)

    def to_named_tuple(self) -> Any:
        """As dp_accounting's events, with the label in a tuple: a bare text would come back as a list of its letters."""
        return cast(Any, super().to_named_tuple())._replace(label=(self.label,))


@attr.s(frozen=True, slots=True, auto_attribs=True)
class IterateDpEvent(dp_event.DpEvent):
    """An iterate before the last is released of one execution of a run: whatever hid in later steps is hidden no more.

    Args:
        run: the run, with its noise.
        step: which iterate, from 1 to T - 1. It is checked, and that is all: whichever it is, all iterates are charged.
        label: names the execution, as in `LastIterateDpEvent`.
    Raises:
        InputError: the run has no noise yet, the step is not before the last, the run has one step only, or the label is empty.
    """

    run: Run = attr.ib(validator=_is_run)
    step: int = attr.ib(validator=_is_step, converter=_number)
    label: str = attr.ib(validator=_is_label, converter=_text)

    def to_named_tuple(self) -> Any:
        """As dp_accounting's events, with the label in a tuple: a bare text would come back as a list of its letters."""
        return cast(Any, super().to_named_tuple())._replace(label=(self.label,))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Execution:
    """What is known of the trainings with one label: whether the one it names was released, how many more there are (from events composed
    several times over), and whether an iterate before the last was released of any.
    """

    run: Run
    named: bool = False
    unnamed: int = 0
    exposed: bool = False

    @property
    def count(self) -> int:
        return int(self.named) + self.unnamed


class LetheAccountant(privacy_accountant.PrivacyAccountant):
    """A ledger of runs whose last iterates are released, together with dp_accounting's own events.

    Formal guarantee: if every execution is as its run says, draws its own noise, batches and order, and all that was released is in the
    ledger, then the releases together are (get_epsilon(delta), delta)-DP under the neighbouring relation.

    | composed | charged |
    |---|---|
    | `LastIterateDpEvent(run, label)`, again in later calls or not | the run's certificate, once: the same model reveals nothing new |
    | the same with a count k > 1, or k times within one event | k independent executions more |
    | the same run, another label | another execution |
    | an `IterateDpEvent` with that label, before or after | every execution of the label, as if all its iterates were released |
    | another run under a label in use, another neighbouring relation, or a run of which nothing is proved | refused |
    | Gaussian, ZCDp, Poisson or without-replacement sampled Gaussian, NoOp, NonPrivate | their own guarantees |
    | Composed, SelfComposed | their parts |
    | more than 1e15 of one thing, in one call or in all | refused |
    | anything else, subclasses of these included | refused |

    Under REPLACE_ONE a Gaussian's noise multiplier is relative to one record's bound, and replacing moves a sum by twice that.

    Args:
        neighboring_relation: of dp_accounting. It must be said: one number of epsilon means another thing under each, and an event does not
            say which is meant.
        allow_large_delta: whether a delta of 1/records or more of some run in the ledger is meant.
    Raises:
        InputError: it is something else.
    """

    def __init__(self, neighboring_relation: NeighboringRelation, *, allow_large_delta: bool = False) -> None:
        self._neighbours: Neighbours = neighbours_of(neighboring_relation)
        self._allow_large_delta = allow_large_delta
        super().__init__(neighboring_relation)
        self._native: Counter[Guarantee] = Counter()
        self._executions: dict[str, _Execution] = {}

    def compose(self, event: dp_event.DpEvent, count: int = 1) -> Any:
        """As of dp_accounting, but counts may be whole numbers of any kind, which its ledger refuses.

        Raises:
            UnsupportedEventError: the event is refused; nothing is changed.
        """
        times = whole(count)
        if times is None:
            return super().compose(event, count)
        while type(event) is dp_event.SelfComposedDpEvent and (often := whole(event.count)) and often > 0:
            times, event = times * often, event.event
        return super().compose(event, times)

    def get_epsilon(self, target_delta: float) -> float:
        """The smallest epsilon proved at `target_delta` in [0, 1), and below 1/records of each run; infinity is a possible answer.

        Raises:
            InputError: it is outside that range.
        """
        delta = require_delta(target_delta)
        records = max((execution.run.records for execution in self._executions.values()), default=None)
        if records is not None and delta > 0.0:
            delta_for(records, delta, allow_large_delta=self._allow_large_delta)
        return self._together(lambda guarantee: guarantee.epsilon(delta)).epsilon(delta)

    def get_delta(self, target_epsilon: float) -> float:
        """The smallest delta proved at `target_epsilon` >= 0.

        Raises:
            InputError: it is below 0.
        """
        epsilon = require_nonnegative("epsilon", target_epsilon)
        return self._together(lambda guarantee: guarantee.delta(epsilon)).delta(epsilon)

    def _together(self, cost: Callable[[Guarantee], float]) -> Guarantee:
        parts = [*self._native.items(), *((_certified(execution, cost), execution.count) for execution in self._executions.values())]
        return _composed(tuple(parts))

    def _maybe_compose(self, event: dp_event.DpEvent, count: int, do_compose: bool) -> _Details | None:
        """dp_accounting's hook: add an event to the account, or only say which part of it is not supported."""
        native: Counter[Guarantee] = Counter()
        releases: Counter[Any] = Counter()
        # A count of 0 only asks what would be supported.
        for leaf, times in leaves_of(event, count or 1):
            try:
                if times is None:
                    raise UnknownEvent("counts need to be whole numbers >= 1, and events a list")
                if type(leaf) in (LastIterateDpEvent, IterateDpEvent):
                    self._check_relation(leaf.run)
                    _check_provable(leaf.run)
                    releases[leaf] += times
                else:
                    guarantee = guarantee_of(leaf, self._neighbours)
                    if guarantee != GDP(0.0):
                        native[guarantee] += times
            except (UnknownEvent, InputError) as error:
                return _Details(invalid_event=leaf, error_message=str(error))
        executions = dict(self._executions)
        for label in {release.label for release in releases}:
            of_label = {release: times for release, times in releases.items() if release.label == label}
            clash = next((r for r in of_label if r.run != (executions[label] if label in executions else next(iter(of_label))).run), None)
            if clash is not None:
                return _Details(invalid_event=clash, error_message=f"the label {label!r} names an execution of another run")
            executions[label] = _with(executions.get(label), of_label)
        total = self._native + native
        if any(number > _MOST_STEPS for number in (*total.values(), *(execution.count for execution in executions.values()))):
            return _Details(invalid_event=event, error_message=f"counts in the ledger need to be at most {_MOST_STEPS:.0e}")
        if do_compose:
            self._native, self._executions = total, executions
        return None

    def _check_relation(self, run: Run) -> None:
        """Refuse a run of another unit or neighbouring relation than the accountant's."""
        if run.unit != "record":
            raise InputError(
                f"unit: the run is about {NOUNS[run.unit][1]}; events say no unit, and this accountant's are about records.",
                source=f"run {run.run_id}",
                remedy="add certificates by lethe.total, which keeps units apart.",
            )
        if RELATIONS[run.neighbours] is not self.neighboring_relation:
            raise InputError(
                f"neighbours: the run's are {run.neighbours}; this accountant's relation is {self.neighboring_relation.name}.",
                source=f"run {run.run_id}",
                remedy=f"account it in LetheAccountant(NeighboringRelation.{RELATIONS[run.neighbours].name}).",
            )


def _check_provable(run: Run) -> None:
    verdicts = _judged(run)
    if not any(verdict.usable for verdict in verdicts):
        raise InputError(f"no theorem applies to run {run.run_id}: {reasons_of(verdicts)}", source=f"run {run.run_id}")


def _with(execution: _Execution | None, releases: dict[Any, int]) -> _Execution:
    """What is known after one call: each event once is the execution of that name; copies of an event are executions of their own."""
    run = next(iter(releases)).run
    execution = execution or _Execution(run=run)
    exposed = execution.exposed or any(isinstance(release, IterateDpEvent) for release in releases)
    if all(times <= 1 for times in releases.values()):
        return _Execution(run=run, named=True, unnamed=execution.unnamed, exposed=exposed)
    return _Execution(run=run, named=execution.named, unnamed=execution.unnamed + sum(releases.values()), exposed=exposed)


def _certified(execution: _Execution, cost: Callable[[Guarantee], float]) -> Guarantee:
    """The guarantee a certificate of the execution rests on: the cheapest of those that hold for what was released."""
    run = execution.run.replace(release="all") if execution.exposed else execution.run
    return min((verdict.bound.guarantee for verdict in _judged(run) if verdict.usable and verdict.bound is not None), key=cost)


@lru_cache(maxsize=64)
def _judged(run: Run) -> tuple[Verdict, ...]:
    return evaluate_theorems(run)


@lru_cache(maxsize=16)
def _composed(parts: tuple[tuple[Guarantee, int], ...]) -> Guarantee:
    return together(parts)
