"""What a design must say of itself, and that nobody asks what it is called."""

import ast
import math
import re
from typing import Any, ClassVar

import pytest
from helpers import DESIGNS, make_run
from helpers import batches as batches_of
from made_up_runs import refused, stating
from repository import ROOT

import lethe
from lethe.errors import InputError
from lethe.run.batches import DESIGNS as CLASSES
from lethe.run.participation import OF_ONE_NUMBER, BatchSizes, Participation
from lethe.run.regularisers import L2

STATED: dict[str, Any] = {
    "design": "stated",
    "participation": Participation.PUBLIC_SLOT,
    "sizes": BatchSizes.EXACT,
    "secret": "",
    "neighbours": OF_ONE_NUMBER,
}


@pytest.mark.parametrize("fact", [name for name in STATED if name != "design"])
def test_a_design_states_each_of_its_facts(fact: str) -> None:
    assert stating(**STATED)(size=3).repeats
    with pytest.raises(InputError, match=f"stated leaves out {fact}"):
        stating(**{name: value for name, value in STATED.items() if name != fact})


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
    ],
)
def test_facts_that_contradict_one_another_are_refused(participation: Participation, sizes: BatchSizes, secret: str) -> None:
    with pytest.raises(InputError, match=f"the design stated .*{participation.value}"):
        stating(**{**STATED, "participation": participation, "sizes": sizes, "secret": secret})


@pytest.mark.parametrize(
    ("facts", "match"),
    [
        ({"groups_of_records": None}, "must say how many groups_of_records"),
        ({"sizes": BatchSizes.EXACT}, "its sizes are binomial"),
        # A design that draws from all records and states groups besides would be certified with one step in so many.
        ({"participation": Participation.INDEPENDENT_DRAW}, "with the participation an independent draw there is one"),
    ],
)
def test_a_design_in_groups_says_what_a_theorem_needs(facts: dict[str, Any], match: str) -> None:
    known = {name: vars(lethe.batches.CyclicPoisson)[name] for name in ("participation", "sizes", "secret", "neighbours")}
    stated = {**known, "groups_of_records": property(lambda batches: 2), **facts, "design": "made_up"}
    with pytest.raises(InputError, match=match):
        stating(**{name: value for name, value in stated.items() if value is not None})


def test_groups_that_a_design_cannot_have_are_refused() -> None:
    for groups in (3, 16, 0, 2.5, math.nan, None):
        with pytest.raises(InputError, match="groups"):
            make_run(records=40, steps=4, batches={"design": "cyclic_poisson", "size": 5, "groups": groups})


@pytest.mark.parametrize("relation", ["replace_one", "zero_out", "add_or_remove"])
@pytest.mark.parametrize("design", [*DESIGNS, "public_slots", "public_heaps"])
def test_a_run_has_a_relation_that_its_design_admits(design: str, relation: Any) -> None:
    batches = batches_of(design, 10)
    if relation in CLASSES[design].neighbours:
        assert make_run(batches=batches, neighbours=relation).neighbours == relation
    else:
        refused(design, lambda: make_run(batches=batches, neighbours=relation))


PACKAGE = ROOT / "lethe"


def test_nobody_branches_on_the_name_of_a_design() -> None:
    """Guarantees of the calculus have a design of their own, a word of two that `require_design` has checked; the option of an estimator,
    of which a mechanism builds its run, is one of four. A run's design is asked for its name by neither."""
    own = ("calculus/", "integrations/dp_accounting", "estimators/choice/")
    of_run = r"batches\.design|(isinstance|type)\([^()]*\bbatches\b"
    by_name, by_key = r"\bdesign (==|!=|in \(|not in )", r"(\[|\.get\()[\w.]*batches\.design"
    by_class = r"isinstance\([^()]*\bbatches\b,|type\([^()]*\bbatches\) (==|is)"
    for path in sorted(PACKAGE.rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if re.search("|".join((by_name, by_key, by_class)), line):
                assert str(path.relative_to(PACKAGE)).startswith(own), f"{path}:{number}"
                assert not re.search(of_run, line), f"{path}:{number}"


def test_whoever_asks_for_a_participation_knows_all_of_them() -> None:
    """Every `match` on one names them all, and a refusal follows it."""
    asked = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        if "participation:" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Match) and ast.unparse(node.subject).endswith("participation"):
                cases = " ".join(ast.unparse(case.pattern) for case in node.cases)
                assert {one for one in Participation if f"Participation.{one.name}" in cases} == set(Participation), f"{path}:{node.lineno}"
                asked += 1
    assert asked >= 8
