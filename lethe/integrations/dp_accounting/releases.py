"""Releases of a run as dp_accounting events: its last iterate, or an iterate on the way."""

from __future__ import annotations

from typing import Any, cast

import attr
from dp_accounting import dp_event  # pyright: ignore[reportMissingTypeStubs]

from lethe.accounting.certify import require_run
from lethe.accounting.dp_events import whole
from lethe.errors import InputError
from lethe.run.run import Run


def _is_run(_: object, __: object, value: Any) -> None:
    if require_run(value, correlated=True).noise_multiplier is None:
        raise InputError(
            "run: noise_multiplier is null; this run has no noise yet.",
            remedy="set it, or let lethe.plan(run, epsilon=..., delta=...) find it.",
        )


def _is_label(_: object, __: object, value: object) -> None:
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
