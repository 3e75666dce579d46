"""The controls of the planner: what each is called, which words it knows, and what it holds at first.

parts.py draws them, state.py reads their texts, and app.py asks for all of them; one list, so that page, link and run agree.
"""

from collections.abc import Mapping
from typing import NamedTuple, get_args

from lethe.run.batches import DESIGNS
from lethe.run.fields import NoiseAt, Release
from lethe.run.losses import LOSSES
from lethe.run.participation import Neighbours, Unit


class Control(NamedTuple):
    """One input of the page.

    Args:
        name: its name in a link.
        label: what stands above it.
        group: the heading it stands under.
        default: its text when the page is opened without a link.
        words: the values it knows, each with what is shown of it; None: any text.
        hint: a line under it.
        broad: whether it takes the whole width.
        only: a control and those of its words with which this one matters; None: always.
        front: whether it stands on the first screen, outside its group.
    """

    name: str
    label: str
    group: str
    default: str = ""
    words: Mapping[str, str] | None = None
    hint: str = ""
    broad: bool = False
    only: tuple[str, frozenset[str]] | None = None
    front: bool = False


def loss_parameters() -> tuple[str, ...]:
    """The names of everything that is known of some loss, each once; who vouches for it is no number and goes into `more`."""
    names = (name for loss in LOSSES.values() for name in loss.model_fields if name != "evidence")
    return (*(name for name in dict.fromkeys(names) if name != "gradient_bound"), "gradient_bound")


def _plain(words: tuple[str, ...]) -> dict[str, str]:
    return {word: word.replace("_", " ") for word in words}


_PRIVACY, _STEPS, _LOSS = "Privacy", "Batches and steps", "Loss and regulariser"
_RELEASES = dict(zip(get_args(Release), ("only the final parameters leave the training", "every iterate may be seen"), strict=True))
_UNITS = dict(zip(get_args(Unit), ("one record", "one user, with all of its records"), strict=True))
_SHAPES = "A number, a list or {schedule: ...}."
_SIZED = frozenset(DESIGNS) - {"full"}
_INTERCEPTS = {"false": "no intercept", "true": "a constant feature 1 is added"}
_PARAMETER_DEFAULTS = {"feature_norm": "1.0", "intercept": "false"}


def _parameter(name: str) -> Control:
    return Control(
        name,
        name.replace("_", " ").capitalize(),
        _LOSS,
        _PARAMETER_DEFAULTS.get(name, ""),
        _INTERCEPTS if name == "intercept" else None,
        "Leave empty where the loss implies one or nothing is known." if name == "gradient_bound" else "",
        only=("loss", frozenset(kind for kind, loss in LOSSES.items() if name in loss.model_fields)),
    )


CONTROLS: tuple[Control, ...] = (
    Control("find", "Find", _PRIVACY, "noise", {"noise": "the noise for this epsilon", "epsilon": "the epsilon of this noise"}, broad=True),
    Control("epsilon", "Epsilon", _PRIVACY, "1.0", only=("find", frozenset({"noise"})), front=True),
    Control(
        "noise",
        "Noise multiplier",
        _PRIVACY,
        "10.0",
        hint=f"{_SHAPES} Where the noise is looked for, only the shape of a list or schedule counts.",
        broad=True,
    ),
    Control("delta", "Delta", _PRIVACY, "1e-6", hint="Below 1/(10 records)."),
    Control("release", "Who sees what", _PRIVACY, "last", _RELEASES, broad=True),
    Control("neighbours", "Neighbours", _PRIVACY, "zero_out", _plain(get_args(Neighbours))),
    Control("unit", "Unit of privacy", _PRIVACY, "record", _UNITS, "Of users, the number of records and the batch size count users."),
    Control("records", "Records", _STEPS, "60000", front=True),
    Control("design", "Batch design", _STEPS, "cyclic", _plain(tuple(DESIGNS))),
    Control("size", "Batch size", _STEPS, "600", only=("design", _SIZED), front=True),
    Control("length", "Length in", _STEPS, "passes", {"passes": "epochs", "steps": "steps"}),
    Control("count", "Epochs", _STEPS, "20", front=True),
    Control("step_size", "Step size", _STEPS, "0.5", hint=_SHAPES),
    Control("noise_at", "Noise at", _STEPS, "every_step", _plain(get_args(NoiseAt))),
    Control("loss", "Kind of loss", _LOSS, "softmax_regression", _plain(tuple(LOSSES)), broad=True),
    *(_parameter(name) for name in loss_parameters()),
    Control("clip_norm", "Clip norm", _LOSS, hint="Leave empty for no clipping, where the loss bounds its gradients."),
    Control("ridge", "Ridge", _LOSS, hint="Strength of the regulariser; leave empty for none."),
    Control("dimension", "Number of parameters", "Prediction", hint="That get noise; only for the predicted risk."),
    Control("initial_gap", "Initial gap", "Prediction", hint="How far the start is above the least loss, at most."),
    Control(
        "more",
        "Other fields of the run",
        "More",
        hint="As in a run's file, such as {clip_method: normalise} or {batches: {truncate_at: 800}}. "
        "Cyclic poisson batches need {batches: {groups: 10}}, or another number.",
        broad=True,
    ),
)
"""In the order of the page."""

NAMED: dict[str, Control] = {control.name: control for control in CONTROLS}
"""By name."""
