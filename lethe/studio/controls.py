"""The controls of the planner: what each is called, which words it knows, and what it holds at first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from lethe.run.batches import DESIGNS
from lethe.run.fields import NoiseAt, Release
from lethe.run.losses import LOSSES
from lethe.run.neighbours import Neighbours, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
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
    """

    name: str
    label: str
    group: str
    default: str = ""
    words: Mapping[str, str] | None = None
    hint: str = ""
    broad: bool = False
    only: tuple[str, frozenset[str]] | None = None


def loss_parameters() -> tuple[str, ...]:
    """The names of everything that is known of some loss, each once; who vouches for it is no number and goes into `more`."""
    names = (name for loss in LOSSES.values() for name in loss.model_fields if name != "evidence")
    return (*(name for name in dict.fromkeys(names) if name != "gradient_bound"), "gradient_bound")


def _said(words: tuple[str, ...]) -> dict[str, str]:
    return {word: word.replace("_", " ") for word in words}


_PARAMETER_WORDS: dict[str, Mapping[str, str]] = {"intercept": {"false": "no intercept", "true": "a constant feature 1 is added"}}
_PARAMETER_DEFAULTS = {"feature_norm": "1.0", "intercept": "false"}
_PARAMETER_HINTS = {"gradient_bound": "Leave empty where the loss implies one or nothing is known."}
_SIZED = frozenset(DESIGNS) - {"full"}


def _parameter(name: str) -> Control:
    return Control(
        name=name,
        label=name.replace("_", " ").capitalize(),
        group="Loss and regulariser",
        default=_PARAMETER_DEFAULTS.get(name, ""),
        words=_PARAMETER_WORDS.get(name),
        hint=_PARAMETER_HINTS.get(name, ""),
        only=("loss", frozenset(kind for kind, loss in LOSSES.items() if name in loss.model_fields)),
    )


CONTROLS: tuple[Control, ...] = (
    Control(
        name="find",
        label="Find",
        group="Privacy",
        default="noise",
        broad=True,
        words={"noise": "the noise for this epsilon", "epsilon": "the epsilon of this noise"},
    ),
    Control(name="epsilon", label="Target epsilon", group="Privacy", default="1.0", only=("find", frozenset({"noise"}))),
    Control(
        name="noise",
        label="Noise multiplier",
        group="Privacy",
        default="10.0",
        hint="A number, a list or {schedule: ...}. Where the noise is looked for, only the shape of a list or schedule counts.",
        broad=True,
    ),
    Control(name="delta", label="Delta", group="Privacy", default="1e-6", hint="Below 1/(10 records)."),
    Control(
        name="release",
        broad=True,
        label="Who sees what",
        group="Privacy",
        default="last",
        words=dict(zip(get_args(Release), ("only the final parameters leave the training", "every iterate may be seen"), strict=True)),
    ),
    Control(name="neighbours", label="Neighbours", group="Privacy", default="zero_out", words=_said(get_args(Neighbours))),
    Control(
        name="unit",
        label="Unit of privacy",
        group="Privacy",
        default="record",
        words=dict(zip(get_args(Unit), ("one record", "one user, with all of its records"), strict=True)),
        hint="Of users, the number of records and the batch size count users.",
    ),
    Control(name="records", label="Records", group="Batches and steps", default="60000"),
    Control(name="design", label="Batch design", group="Batches and steps", default="cyclic", words=_said(tuple(DESIGNS))),
    Control(name="size", label="Batch size", group="Batches and steps", default="600", only=("design", _SIZED)),
    Control(name="length", label="Length in", group="Batches and steps", default="passes", words=_said(("passes", "steps"))),
    Control(name="count", label="How many", group="Batches and steps", default="20"),
    Control(name="step_size", label="Step size", group="Batches and steps", default="0.5", hint="A number, a list or {schedule: ...}."),
    Control(name="noise_at", label="Noise at", group="Batches and steps", default="every_step", words=_said(get_args(NoiseAt))),
    Control(
        name="loss",
        label="Kind of loss",
        group="Loss and regulariser",
        default="softmax_regression",
        broad=True,
        words=_said(tuple(LOSSES)),
    ),
    *(_parameter(name) for name in loss_parameters()),
    Control(
        name="clip_norm",
        label="Clip norm",
        group="Loss and regulariser",
        hint="Leave empty for no clipping, where the loss bounds its gradients.",
    ),
    Control(name="ridge", label="Ridge", group="Loss and regulariser", hint="Strength of the regulariser; leave empty for none."),
    Control(name="dimension", label="Number of parameters", group="Prediction", hint="That get noise; only for the predicted risk."),
    Control(name="initial_gap", label="Initial gap", group="Prediction", hint="How far the start is above the least loss, at most."),
    Control(
        name="more",
        label="Other fields of the run",
        group="More",
        broad=True,
        hint="As in a run's file, such as {clip_method: normalise} or {batches: {truncate_at: 800}}. "
        "Cyclic poisson batches need {batches: {groups: 10}}, or another number.",
    ),
)
"""In the order of the page."""

NAMED: dict[str, Control] = {control.name: control for control in CONTROLS}
"""By name."""
