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
BARE_LOSS = (
    "each loss handed to engine.backward is made of its own record's output and target (their gradients were checked; what enters them "
    "without a gradient, such as a mean, a rank or a count of the batch, was not, but for a count of its tokens: engine.losses looks at "
    "that), and what else enters it is public"
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
    "what the loop does between the loader and the model, and between the model and the losses, keeps records apart, and gives the model "
    "each batch in its own step alone: none is kept, or replayed, for another"
)
ORDER = "the losses handed to engine.backward stand in the order of the loader's rows: whose each of them is, is told by its place alone"
UNCHECKED = "neither model nor loss was checked in any batch (verify=False): that they keep records apart is all declared"
UNSEEN = "what no check of training could see keeps records apart; training told whoever trained which that was"

ALONE = "record by record: each record passed through the model alone, and its gradient is the one of plain autograd"
"""What a check says of a training in which no record meets another: there is nothing left to declare but MODEL."""


def of_loss(*, optimiser: bool, loop: bool = False, bare: bool = False, users: bool = False) -> tuple[str, ...]:
    """The assumptions to declare of the loss, of the code around it, and of what a unit is.

    Args:
        optimiser: whether one of the caller's own takes the steps, all of which are released.
        loop: whether the loop is the caller's own.
        bare: whether some of its losses did not come from engine.losses.
        users: whether they are the unit.
    """
    of_loop = (LOOP, *((ORDER,) if users else ())) if loop else ()
    return (*((USERS,) if users else ()), BARE_LOSS if bare else LOSS, *of_loop, *((OPTIMISER,) if optimiser else ()))


def claims(*, data: Any, verify: bool, loss: tuple[str, ...]) -> tuple[HypothesisClaim, ...]:
    """The declared assumptions as a certificate states them, by name. It is published, so nothing in it may depend on the records.

    What a check could not see, and what a model was found to keep, may depend on them; in its place stands that there may be such a thing.

    Args:
        data, verify, loss: as for `declared_of`.
    """
    named = {START: "start", MODEL: "model", LOSS: "loss", BARE_LOSS: "loss", LOOP: "loop", ORDER: "order", OPTIMISER: "optimiser"}
    named |= {USERS: "users", UNCHECKED: "checks", UNSEEN: "unseen"}
    said = (START, MODEL, *loss, *_of_data(data), UNSEEN if verify else UNCHECKED)
    return tuple(HypothesisClaim(named.get(statement, "data"), statement) for statement in said)


def declared_of(
    *,
    data: Any,
    verify: bool,
    checked: str | None,
    loss: tuple[str, ...],
    missing: tuple[str | None, ...] = (),
    attributes: str | None = None,
) -> tuple[str, ...]:
    """The declared assumptions, one statement each.

    Args:
        data: a source; what it declares of itself is `data.declared`, if it does.
        verify: whether model and loss were checked at all.
        checked: what the self-check could say of the model.
        loss: what there is to declare of the loss.
        missing: why something could not be checked; None: it was.
        attributes: what there is to declare of the model's plain attributes.
    """
    unseen = [] if verify else [UNCHECKED]
    if verify and checked not in ("checked", ALONE):
        unseen.append(f"what the self-check could not see keeps records apart: {checked or 'no batch had two records with gradients'}")
    unseen += [f"what could not be compared keeps records apart: {reason}" for reason in missing if reason is not None]
    kept = () if attributes is None else (attributes,)
    return (START, MODEL, *kept, *loss, *_of_data(data), *unseen)


def _of_data(data: Any) -> tuple[str, ...]:
    own = not type(data).__module__.startswith("lethe.") and not hasattr(data, "declared")
    apart = (f"{type(data).__name__}.fetch makes each row of a batch of its own record alone",) if own else ()
    return (*apart, *getattr(data, "declared", ()))
