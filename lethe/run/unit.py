"""The unit of privacy of a Run: what is clipped once, is drawn into batches, and enters or leaves as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lethe.errors import InputError

if TYPE_CHECKING:
    from lethe.run.run import Run

Unit = Literal["record", "user"]
"""record: each record by itself. user: all records of one user together; `records` of the Run then counts users."""

NOUNS: dict[Unit, tuple[str, str]] = {"record": ("record", "records"), "user": ("user", "users")}
"""A unit in words: one, and several."""


def clipped_along_a_line(run: Run) -> bool:
    r"""Whether the gradient of every unit keeps one direction wherever it is taken, so that clipping truncates a slope and turns nothing.

    $\nabla f_i(x) = \ell_i'(\langle u_i, x\rangle)\, u_i$ of one record of a scalar loss. The mean over a user's records has several $u_i$:
    its direction changes, and a clipped step of it may expand as that of any other loss.
    """
    return run.loss.scalar and run.unit == "record"


def refuse_users(run: Run, where: str) -> None:
    """Refuse a run about users where nothing puts a user's records together.

    Args:
        run: to be carried out.
        where: what was asked to do so, in words.
    Raises:
        InputError: run.unit is "user".
    """
    if run.unit != "record":
        raise InputError(
            f"unit: {run.unit}; {where} knows no users: each record would count by itself, and a user as often as it has records.",
            source="run.unit",
            remedy="train a torch.nn.Module by lethe.train.fit(..., users=ids), or state unit: record.",
        )
