"""The lists that the tests go through hold every public class, so that what is new is tested with the rest."""

from helpers import (
    DESIGNS,
    EXACT_DESIGNS,
    LINEAR_LOSSES,
    LOSSES,
    NEIGHBOURS,
    REGULARISERS,
    SCHEDULES,
    SLOT_DESIGNS,
    admits,
    batches,
    make_run,
)

import lethe
from lethe.run.losses import LOSSES as LOSS_CLASSES
from lethe.run.losses.linear import LinearLoss
from lethe.run.regularisers import REGULARISERS as REGULARISER_CLASSES
from lethe.run.schedules import SCHEDULES as SCHEDULE_CLASSES


def test_every_design_is_in_the_list_and_in_those_made_from_its_facts() -> None:
    assert {getattr(lethe.batches, name) for name in lethe.batches.__all__} == {
        type(make_run(batches=batches(name, 10)).batches) for name in DESIGNS
    }
    assert {*EXACT_DESIGNS} == {"full", "cyclic", "shuffled_once", "shuffled", "without_replacement"}
    assert {*SLOT_DESIGNS} == {"cyclic", "shuffled_once", "shuffled", "random_allocation", "balls_in_bins"}
    assert {name for name in DESIGNS if admits(name, "add_or_remove")} == {"full", "poisson", "random_allocation", "balls_in_bins"}
    assert {relation for relation in NEIGHBOURS for name in DESIGNS if admits(name, relation)} == {*NEIGHBOURS}


def test_every_loss_is_in_the_list() -> None:
    assert {loss["kind"] for loss in LOSSES} == set(LOSS_CLASSES)
    assert {type(loss) for loss in LINEAR_LOSSES} == {loss for loss in LOSS_CLASSES.values() if issubclass(loss, LinearLoss)}


def test_every_regulariser_is_in_the_list() -> None:
    single = [one for listed in REGULARISERS for one in (listed if isinstance(listed, list) else [listed]) if one is not None]
    assert {one["kind"] for one in single} == set(REGULARISER_CLASSES)


def test_every_schedule_is_in_the_list() -> None:
    plain = {float: "constant", list: "explicit"}
    assert {one["schedule"] if isinstance(one, dict) else plain[type(one)] for one in SCHEDULES} == set(SCHEDULE_CLASSES)
