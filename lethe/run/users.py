"""What changes, besides words, where a user is the unit of a Run; and where such runs are refused."""

from __future__ import annotations

from lethe.errors import InputError
from lethe.run.run import Run


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
            f"unit: {run.unit}; {where} knows no users, and protects single records.",
            source="run.unit",
            remedy="give users=ids to TrainOptions, PrivateTrainer(..., users=ids) or PrivateTraining; or state unit: record.",
        )
