"""Which tensors hold records, told by batches of two other sizes: a dimension that is as long as the batch by chance stays as it is."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import torch
from torch import nn

from lethe.errors import LetheError
from lethe.train.clipping.checks.replaced_batch import Given
from lethe.train.clipping.checks.signature import signature_of_outputs
from lethe.train.clipping.decisions import Decisions
from lethe.train.clipping.hooks import Recording
from lethe.train.clipping.survey import Survey
from lethe.train.core.comparison import FAILURES
from lethe.train.model_state.undisturbed import undisturbed

_SIZES = (2, 3, 4, 5)


def answers_of_other_sizes(
    model: nn.Module, found: Survey, given: Given
) -> tuple[list[Mapping[Hashable, tuple[bool, ...]]], frozenset[Hashable]]:
    """What is settled in two batches of 2 to 5 of the records, each of another size than the batch; less where the model takes none.

    And the signature of the model's graph in them.

    Args:
        model: whose hooks of the engine are asleep.
        found: its survey.
        given: what it is called with.
    """
    told: list[Mapping[Hashable, tuple[bool, ...]]] = []
    graph: frozenset[Hashable] = frozenset()
    arguments = (given.args, given.kwargs)
    with undisturbed(model, arguments, skipped=given.tensors()) as rewind:
        for size in [size for size in _SIZES if size != given.records][:2]:
            decisions = Decisions()
            recording = Recording(model, found, decisions, records=size, attached=False)
            rewind()
            try:
                recording.open()
                with torch.enable_grad():
                    output = given.taken([place % given.records for place in range(size)]).called(model)
                graph |= signature_of_outputs(output, recording)
                told.append(decisions.settled)
            except (LetheError, *FAILURES):
                continue  # the batch itself will say what is wrong, or this is a model of larger batches
            finally:
                recording.close()
    return told, graph
