"""Assumptions of a training's certificate that no code checked: declared by the user, by name."""

from __future__ import annotations

from typing import Any

from lethe.certificates.training_record import HypothesisClaim

START = (
    "the model's weights, and the optimiser's state, before training do not depend on these records, unless by a training that is "
    "certified as well: the two certificates then add up"
)
MODEL = (
    "the model keeps records apart in batches other than those that were checked, and keeps nothing of what it saw, in itself, in a file, "
    "in an iterator or elsewhere"
)
LOSS = (
    "each record's loss is made of its own output and target in batches other than those that were checked, and what else enters it "
    "(weights, constants, tensors and numbers that the loss holds) is public, and no count, mean or rank of a batch"
)
OPTIMISER = (
    "the optimiser and its hooks make each step of noisy gradients and of nothing else of the records, and its settings follow a plan, or "
    "what is released: no learning rate is chosen by a training loss"
)
USERS = (
    "all records of a user have its id, and nobody else's record has it; whose a record is was not found out by a look at other users' "
    "records; and the list of ids stays as it is when one user's data are others"
)
WORKERS = "whoever carries out passes over a table in blocks is told which of its records are in a batch, and tells nobody"
LOOP = (
    "what the loop does to a batch between the loader and engine.backward keeps records apart, and each batch is used in its own step "
    "alone: none is kept, or replayed, for another"
)
ORDER = "the losses of a batch stand in the order of its rows: whose each of them is, is known by its row alone"
UNCHECKED = "neither model nor loss was checked in any batch (isolation=declared): that they keep records apart is all declared"
ATTRIBUTES = (
    "what modules and the loss keep in Python objects, in a file, in an iterator or elsewhere is nothing of the records: each of them "
    "passed through the model as a batch of its own, and what it leaves there was not looked for; and padding, whose length the longest "
    "record of a batch decides, is masked"
)
"""In the place of MODEL and LOSS where isolation is enforced."""


def of_loss(*, optimiser: bool, loop: bool = False, users: bool = False) -> tuple[str, ...]:
    """The assumptions to declare of the loss, of the code around it, and of what a unit is.

    Args:
        optimiser: whether one of the caller's own takes the steps, all of which are released.
        loop: whether the loop is the caller's own.
        users: whether they are the unit.
    """
    of_loop = (LOOP, *((ORDER,) if users else ())) if loop else ()
    return (*((USERS,) if users else ()), LOSS, *of_loop, *((OPTIMISER,) if optimiser else ()))


def claims(*, data: Any, isolation: str, loss: tuple[str, ...]) -> tuple[HypothesisClaim, ...]:
    """The declared assumptions as a certificate states them, by name. It is published, so nothing in it may depend on the records.

    Args:
        data, isolation, loss: as for `declared_of`.
    """
    named = {START: "start", MODEL: "model", LOSS: "loss", LOOP: "loop", ORDER: "order", OPTIMISER: "optimiser"}
    named |= {USERS: "users", UNCHECKED: "checks", ATTRIBUTES: "model"}
    said = declared_of(data=data, isolation=isolation, loss=loss)
    return tuple(HypothesisClaim(named.get(statement, "data"), statement) for statement in said)


def declared_of(*, data: Any, isolation: str, loss: tuple[str, ...]) -> tuple[str, ...]:
    """The declared assumptions, one statement each.

    Args:
        data: a source; what it declares of itself is `data.declared`, if it does.
        isolation: of the Clipper.
        loss: what there is to declare of the loss.
    """
    apart = (ATTRIBUTES,) if isolation == "enforced" else (MODEL,)
    loss = tuple(statement for statement in loss if isolation != "enforced" or statement is not LOSS)
    return (START, *apart, *loss, *_of_data(data), *((UNCHECKED,) if isolation == "declared" else ()))


def _of_data(data: Any) -> tuple[str, ...]:
    own = not type(data).__module__.startswith("lethe.") and not hasattr(data, "declared")
    apart = (f"{type(data).__name__}.fetch makes each row of a batch of its own record alone",) if own else ()
    return (*apart, *getattr(data, "declared", ()))
