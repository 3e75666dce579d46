"""What a certificate of training rests on that no code saw: declared by whoever trains, and named."""

from __future__ import annotations

from typing import Any

START = (
    "the model's weights, and the optimiser's state, before training do not depend on these records, unless by a training that is "
    "certified as well: the two certificates then add up"
)
MODEL = "the model keeps records apart in batches other than those that were checked, and keeps nothing of what it saw"
LOSS = (
    "each record's loss is made of its own output and target in batches other than those that were checked, and what else enters it "
    "(weights, constants, tensors that the loss holds) is public"
)
BARE_LOSS = (
    "each loss handed to engine.backward is made of its own record's output and target (their gradients were checked; what enters them "
    "without a gradient, such as a mean or a count of the batch, was not: engine.losses looks at that), and what else enters it is public"
)
OPTIMISER = (
    "the optimiser and its hooks make each step of noisy gradients and of nothing else of the records, and its settings follow a plan, or "
    "what is released: no learning rate is chosen by a training loss"
)
LOOP = "what the loop does between the loader and the model, and between the model and the losses, keeps records apart"


def declared_of(
    *,
    data: Any,
    verify: bool,
    checked: str | None,
    loss: tuple[str, ...],
    missing: tuple[str | None, ...] = (),
    attributes: str | None = None,
) -> tuple[str, ...]:
    """The statements, each by itself.

    Args:
        data: a source; what it declares of itself is `data.declared`, if it does.
        verify: whether model and loss were checked at all.
        checked: what the self-check could say of the model.
        loss: what there is to declare of the loss.
        missing: why something could not be checked; None: it was.
        attributes: what there is to declare of the model's plain attributes.
    """
    unseen = (
        [] if verify else ["neither model nor loss was checked in any batch (verify=False): that they keep records apart is all declared"]
    )
    if verify and checked != "checked":
        unseen.append(f"what the self-check could not see keeps records apart: {checked or 'no batch had two records with gradients'}")
    unseen += [f"what could not be compared keeps records apart: {reason}" for reason in missing if reason is not None]
    kept = () if attributes is None else (attributes,)
    own = not type(data).__module__.startswith("lethe.") and not hasattr(data, "declared")
    apart = (f"{type(data).__name__}.fetch makes each row of a batch of its own record alone",) if own else ()
    return (START, MODEL, *kept, *loss, *apart, *getattr(data, "declared", ()), *unseen)
