"""A few of a batch's records, passed through the model again: which tensors hold them, and their gradients by rules and by autograd."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Set

import torch
from torch import Tensor, nn

from lethe.errors import LetheError
from lethe.train.clipping.checks.gradient_checks import check_gradients
from lethe.train.clipping.checks.replaced_batch import Given
from lethe.train.clipping.checks.signature import signature_of_outputs
from lethe.train.clipping.decisions import Decisions
from lethe.train.clipping.hooks import Recording
from lethe.train.clipping.rules.parts import Part
from lethe.train.clipping.survey import Survey
from lethe.train.core.comparison import FAILURES, first_line
from lethe.train.model_state.outputs import Place, has_rows, leaves_of
from lethe.train.model_state.undisturbed import Rewind, undisturbed

Backward = Callable[[Recording, Tensor], Mapping[nn.Parameter, Part]]

_SIZES = (2, 3, 5, 7)


def answers_of_another_size(
    model: nn.Module, found: Survey, given: Given, rewind: Rewind
) -> tuple[Mapping[Hashable, tuple[bool, ...]], frozenset[Hashable]]:
    """What is settled in a batch of 2 to 7 of the records, of another size than the batch; nothing where the model takes none.

    Of a size that the batch's is no multiple of, if it takes one: what is as long as the batch holds no whole rows of so few records.

    And the signature of the model's graph in it.

    Args:
        model: whose hooks of the engine are asleep.
        found: its survey.
        given: what it is called with.
        rewind: of the surrounding `undisturbed`; the model is as before afterwards.
    """
    told, graph = dict[Hashable, tuple[bool, ...]](), frozenset[Hashable]()
    for size in sorted((size for size in _SIZES if size != given.records), key=lambda size: given.records % size == 0):
        decisions = Decisions()
        recording = Recording(model, found, decisions, records=size, attached=False)
        rewind()
        try:
            recording.open()
            with torch.enable_grad():
                output = given.taken([place % given.records for place in range(size)]).called(model)
            told, graph = dict(decisions.settled), signature_of_outputs(output, recording)
            break
        except (LetheError, *FAILURES):
            continue  # the batch itself will say what is wrong, or this is a model of larger batches
        finally:
            recording.close()
    rewind.model()
    return told, graph


def replay(model: nn.Module, found: Survey, given: Given, beside: Set[Place], decisions: Decisions, backward: Backward) -> str | None:
    """Compare gradients of a number that is made of each record's outputs, every entry of which counts differently.

    Args:
        model: whose hooks of the engine are asleep or off.
        found: its survey.
        given: a few of the records.
        beside: the places of outputs without an entry a record.
        decisions: which tensors hold records.
        backward: from a recording and the sum of its losses to what the rules tell of each parameter, the graph kept.
    Returns:
        Why nothing could be compared; None if all agreed.
    Raises:
        InputError: they disagree, or records mix.
    """
    with undisturbed(model, (given.args, given.kwargs), skipped=given.tensors()):
        recording = Recording(model, found, decisions, records=given.records, attached=True)
        try:
            recording.open()
            with torch.enable_grad():
                numbers = numbers_of(given.called(model), given.records, beside)
        except FAILURES as error:
            return f"the model does not accept a few of the records: {first_line(error)}"
        finally:
            recording.close()
        if numbers is None or not numbers.requires_grad:
            return "the model's output holds no tensor with the records first"
        parts = backward(recording, numbers.sum())
        check_gradients(parts, numbers, None, recording, summed=True)
    return None


def numbers_of(output: object, records: int, beside: Set[Place]) -> Tensor | None:
    """One number for each record, of all its outputs that have a gradient; None if there are none.

    Args:
        output: of the model.
        records: how many it was given.
        beside: see `replay`.
    """
    known = [entry for place, entry in leaves_of(output).items() if place not in beside and has_rows(entry, records)]
    rows = [entry.flatten(1) for entry in known if entry.requires_grad and entry.is_floating_point()]
    if not rows:
        return None
    return torch.stack([(row * torch.linspace(0.5, 1.5, row.shape[1]).to(row)).sum(1).double() for row in rows]).sum(0)
