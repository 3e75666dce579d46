"""What the steps of a Run descend: each record's loss, or its Lipschitz envelope; and whether clipping can turn a gradient.

Trainers, theorems and certificates ask it of a Run. A linear model's envelope is the largest function below the loss whose gradients stay
within the clip norm C.
"""

from lethe.run.fields import ClipMethod
from lethe.run.losses.linear import LinearLoss
from lethe.run.run import Run


def descends_envelope(run: Run) -> bool:
    """Whether each record's loss is replaced by its envelope of bound C, and that is another function than the loss."""
    return run.clip_method == "envelope" and run.clips


def gradients_by(run: Run) -> ClipMethod:
    """How the gradients of records are bounded: the run's clip method, but an envelope that is the loss itself needs no search."""
    return "clip" if run.clip_method == "envelope" and not run.clips else run.clip_method


def descended_curvature(run: Run) -> tuple[float, float] | None:
    """(m, M) of the function whose gradient is taken, and then clipped if the run says so; None when no smoothness is known."""
    if not descends_envelope(run):
        return run.loss.curvature
    assert isinstance(run.loss, LinearLoss)  # a Run refuses the rest
    assert run.clip_norm is not None
    return 0.0, run.loss.envelope_smoothness(run.clip_norm)


def descended_name(run: Run) -> str:
    """The function in words."""
    return f"envelope of the {run.loss.summary}" if descends_envelope(run) else run.loss.summary


def gradient_error(run: Run) -> float:
    r"""$\eta$, how far the gradient of a record may be from that of what is descended, as a share of C, beside rounding; mostly 0."""
    return run.loss.envelope_error if isinstance(run.loss, LinearLoss) and descends_envelope(run) else 0.0


def clipped_along_a_line(run: Run) -> bool:
    r"""Whether the gradient of every unit keeps one direction wherever it is taken, so that clipping truncates a slope and turns nothing.

    $\nabla f_i(x) = \ell_i'(\langle u_i, x\rangle)\, u_i$ of one record of a scalar loss. The mean over a user's records has several $u_i$:
    its direction changes, and a clipped step of it may expand as that of any other loss; so may its part along another direction.
    """
    return run.loss.scalar and run.unit == "record" and run.clip_method != "directional_isotropic"
