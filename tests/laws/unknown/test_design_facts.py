"""What a design must say of itself."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from helpers import DESIGNS, make_run
from helpers import batches as batches_of
from made_up_runs import MadeUp, refused

import lethe
from lethe.errors import InputError
from lethe.run.batches import DESIGNS as CLASSES
from lethe.run.neighbours import OF_ONE_NUMBER
from lethe.run.participation import BatchSizes, Participation
from lethe.run.regularisers import L2

STATED: dict[str, Any] = {
    "participation": Participation.PUBLIC_SLOT,
    "sizes": BatchSizes.EXACT,
    "secret": "",
    "neighbours": OF_ONE_NUMBER,
}


def stating(facts: dict[str, Any]) -> Any:
    """A design made of these facts."""
    hints = dict.fromkeys(("design", *facts), ClassVar[Any])
    return type("Stated", (MadeUp,), {"design": "stated", **facts, "__module__": __name__, "__annotations__": hints})


@pytest.mark.parametrize("fact", STATED)
def test_a_design_states_each_of_its_facts(fact: str) -> None:
    assert stating(STATED)(size=3).repeats
    with pytest.raises(InputError, match=f"stated leaves out {fact}"):
        stating({name: value for name, value in STATED.items() if name != fact})


def test_nothing_inherits_what_another_states() -> None:
    with pytest.raises(InputError, match="inherits from cyclic"):

        class Twice(lethe.batches.Cyclic):  # pyright: ignore[reportUnusedClass]
            design: ClassVar[str] = "twice"

    with pytest.raises(InputError, match="inherits from cyclic"):

        class Nameless(lethe.batches.Cyclic):  # pyright: ignore[reportUnusedClass]
            pass

    with pytest.raises(InputError, match="inherits from ridge"):

        class Steeper(L2):  # pyright: ignore[reportUnusedClass]
            kind: ClassVar[str] = "steeper"


@pytest.mark.parametrize(
    ("participation", "sizes", "secret"),
    [
        (Participation.PUBLIC_SLOT, BatchSizes.EXACT, "the order"),
        (Participation.SECRET_SLOT, BatchSizes.EXACT, ""),
        (Participation.FRESH_SECRET_SLOT, BatchSizes.EXACT, ""),
        (Participation.INDEPENDENT_DRAW, BatchSizes.BINOMIAL, ""),
        (Participation.EVERY_STEP, BatchSizes.BINOMIAL, ""),
        (Participation.PUBLIC_SLOT, BatchSizes.BINOMIAL, ""),
        (Participation.FRESH_SECRET_SLOT, BatchSizes.BINOMIAL, "the slots"),
    ],
)
def test_facts_that_contradict_one_another_are_refused(participation: Participation, sizes: BatchSizes, secret: str) -> None:
    with pytest.raises(InputError, match=f"the design stated .*{participation.value}"):
        stating({**STATED, "participation": participation, "sizes": sizes, "secret": secret})


@pytest.mark.parametrize("relation", ["replace_one", "zero_out", "add_or_remove"])
@pytest.mark.parametrize("design", [*DESIGNS, "public_slots", "public_heaps"])
def test_a_run_has_a_relation_that_its_design_admits(design: str, relation: Any) -> None:
    batches = batches_of(design, 10)
    if relation in CLASSES[design].neighbours:
        assert make_run(batches=batches, neighbours=relation).neighbours == relation
    else:
        refused(design, lambda: make_run(batches=batches, neighbours=relation))
