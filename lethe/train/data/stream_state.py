"""The state of a batch stream in a checkpoint: plain data and one tensor."""

from __future__ import annotations

from typing import Any

import torch

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.data.draws import Anchor
from lethe.train.data.fingerprint import Fingerprint
from lethe.train.data.members import Members
from lethe.train.data.sources.base import Layout, Source

_FORMAT = 2


def write_state(run: Run, anchor: Anchor, steps_done: int, fingerprint: Fingerprint, members: Members | None) -> dict[str, Any]:
    """The state of a batch stream as plain data; `torch.load` reads it back with weights_only=True.

    Args:
        run: gives the batch design.
        anchor: the generator's state at the start of the pass.
        steps_done: of the run.
        fingerprint: of the data.
        members: of units of several records; None: a unit is a record.
    """
    return {
        "format": _FORMAT,
        "draws": _draws(run),
        "steps_done": steps_done,
        "anchor_step": anchor.step,
        "anchor_state": anchor.state.clone(),
        "source": fingerprint.to_document(),
        **({} if members is None else {"units": members.digest()}),
    }


def read_state(
    state: Any, run: Run, generator: torch.Generator, source: Source, layout: Layout, members: Members | None
) -> tuple[Anchor, int]:
    """The anchor and the number of steps done, from what `write_state` wrote.

    Args:
        state: what was read back; anything.
        run: to be continued.
        generator: of the stream; the state must fit it.
        source, layout, members: the data, and what belongs together in them, which must be those of before.
    Raises:
        InputError: the state is none, or of another run or other data.
    """
    needed = {"format", "draws", "steps_done", "anchor_step", "anchor_state", "source"}
    if not isinstance(state, dict) or set(state) - {"units"} != needed or state["format"] != _FORMAT:
        raise InputError("state: this is not the state of a batch stream of this version.", remedy="give what state_dict returned.")
    draws = _draws(run)
    if state["draws"] != draws:
        raise InputError(
            f"state: it belongs to the draws {state['draws']}; this stream's are {draws}.",
            remedy="take training up again with the run it began with.",
        )
    if state.get("units") != (None if members is None else members.digest()):
        raise InputError(
            "state: it belongs to other users, or to another number of records or views of each.",
            source="users, records_per_user, views",
            remedy="take training up again with what it began with.",
        )
    done, first = state["steps_done"], state["anchor_step"]
    if any(isinstance(number, bool) or not isinstance(number, int) for number in (done, first)):
        raise InputError(f"state: steps_done = {done!r} and anchor_step = {first!r}; they need to be integers.")
    if not 0 <= first <= done <= run.total_steps or first % run.steps_per_pass:
        raise InputError(f"state: {done} steps done since a pass that began after step {first}; the run has {run.total_steps}.")
    document = state["source"]
    key = document.get("key") if isinstance(document, dict) else None
    Fingerprint.of(source, layout, _checked_key(key)).with_whole(source).refuse_others(document)
    return Anchor(step=first, state=_checked_state(state["anchor_state"], generator)), done


def _draws(run: Run) -> dict[str, Any]:
    """Everything the draws depend on besides the generator."""
    return {"records": run.records, "batches": run.batches.to_document(), "steps": run.total_steps}


def _checked_key(key: object) -> str:
    try:
        if isinstance(key, str) and len(bytes.fromhex(key)) == 32:
            return key
    except ValueError:
        pass
    raise InputError("state: the key of its data source is damaged.", source="state['source']['key']")


def _checked_state(state: object, generator: torch.Generator) -> torch.Tensor:
    before = generator.get_state()
    try:
        if not isinstance(state, torch.Tensor):
            raise TypeError("no tensor")
        copied = state.cpu().clone()
        generator.set_state(copied)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"state: the generator's state cannot be used: {error}.", source="state['anchor_state']") from error
    finally:
        generator.set_state(before)
    return copied
