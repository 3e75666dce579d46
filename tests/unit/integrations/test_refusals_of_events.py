"""What Lethe's accountant and the export to dp_accounting refuse: the call, and what the error names."""

import math
from typing import Any

import pytest
from dp_accounting import UnsupportedEventError, dp_event
from interop_cases import ADD, gaussian, poisson, run_of

import lethe
from lethe.integrations.dp_accounting import LastIterateDpEvent, LetheAccountant, to_dp_event


class _Odd(dp_event.GaussianDpEvent):
    """A Gaussian that means something else."""


@pytest.mark.parametrize(
    "event",
    [
        dp_event.UnsupportedDpEvent(),
        dp_event.DpEvent(),
        _Odd(1.0),
        dp_event.LaplaceDpEvent(1.0),
        gaussian(-1.0),
        gaussian(math.nan),
        dp_event.GaussianDpEvent("much"),  # pyright: ignore[reportArgumentType]
        poisson(1.5, 1.0),
        dp_event.PoissonSampledDpEvent(0.5, dp_event.LaplaceDpEvent(1.0)),
        dp_event.PoissonSampledDpEvent(0.5, LastIterateDpEvent(run_of("poisson", "add_or_remove"), "a")),
        dp_event.ZCDpEvent(-0.1),
        dp_event.ZCDpEvent(0.1, -0.1),
        dp_event.SelfComposedDpEvent(gaussian(1.0), 0),
        dp_event.SelfComposedDpEvent(gaussian(1.0), -3),
        dp_event.SelfComposedDpEvent(gaussian(1.0), 2.5),  # pyright: ignore[reportArgumentType]
        dp_event.ComposedDpEvent([dp_event.SelfComposedDpEvent(gaussian(1.0), -3)]),
        dp_event.ComposedDpEvent("abc"),  # pyright: ignore[reportArgumentType]
        dp_event.ComposedDpEvent([gaussian(1.0), "abc"]),  # pyright: ignore[reportArgumentType]
        dp_event.SampledWithoutReplacementDpEvent(10, 11, gaussian(1.0)),
        dp_event.SampledWithoutReplacementDpEvent(0, 0, gaussian(1.0)),
    ],
    ids=repr,
)
def test_what_is_not_understood_is_unsupported_and_leaves_no_trace(event: Any) -> None:
    accountant = LetheAccountant(ADD)
    assert not accountant.supports(event)
    for composed in (event, dp_event.ComposedDpEvent([gaussian(1.0), event])):
        with pytest.raises(UnsupportedEventError):
            accountant.compose(composed)
    assert accountant.get_epsilon(1e-5) == 0.0
    assert accountant.ledger == dp_event.NoOpDpEvent()


SPENT = LetheAccountant(ADD).compose(gaussian(1.0))
REFUSED: list[tuple[Any, str]] = [
    *((lambda bad=bad: SPENT.get_epsilon(bad), "delta") for bad in (-0.1, 1.0, 1.5, math.nan, None, "small", True)),
    *((lambda bad=bad: SPENT.get_delta(bad), "epsilon") for bad in (-0.1, math.nan, None, "small")),
    *((lambda bad=bad: LetheAccountant(bad), "NeighboringRelation") for bad in (None, "REPLACE_ONE", 2, "replace_one")),
    (lambda: to_dp_event(lethe.guarantees.GDP(1.0)), r"needs a lethe\.Certificate"),  # pyright: ignore[reportArgumentType]
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_arguments_are_refused(call: Any, words: str) -> None:
    with pytest.raises(lethe.InputError, match=words):
        call()
