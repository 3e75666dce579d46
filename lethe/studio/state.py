"""The state of the planner: the texts of its controls, as a Run, and as the query of a link.

app.py makes a `State` of the inputs, answers.py computes on it, and `lethe studio FILE` starts with that of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from lethe.documents.strict import parse_value, to_json
from lethe.errors import InputError
from lethe.run.losses import LOSSES
from lethe.run.run import Run
from lethe.studio.controls import CONTROLS, NAMED, loss_parameters

LONGEST_LINK = 16_000
"""Letters of a query that an address may have; servers and browsers take no request of any length."""

_OPEN = "open the page without anything after the ?, and set the controls again."
_INSIDE = {"batches": {"design", "size"}, "loss": {"kind", *loss_parameters()}}


class Question(NamedTuple):
    """What is asked of a run: the noise for `epsilon` at `delta`, where its own noise is only a shape; or the epsilon of its noise.

    dimension, initial_gap: of `lethe.utility.excess_risk_bound`; None: not given.
    """

    run: Run
    find_noise: bool
    epsilon: Any
    delta: Any
    dimension: Any
    initial_gap: Any


@dataclass(frozen=True, slots=True)
class State:
    """The text of every control, whether or not it makes sense; a control that is missing or unknown, or an unknown word, is refused."""

    texts: Mapping[str, str]

    def __post_init__(self) -> None:
        for name in self.texts:
            if name not in NAMED:
                raise InputError(f"{name}: the planner has no such control.", source="link", remedy=_OPEN)
        for control in CONTROLS:
            text = self.texts.get(control.name)
            if text is None:
                raise InputError(f"{control.name}: missing.", source="link", remedy=_OPEN)
            if control.words is not None and text not in control.words:
                what = f"{control.name}: got {text!r}; it needs one of {', '.join(control.words)}."
                raise InputError(what, source="link", remedy="choose one of them.")

    @classmethod
    def first(cls) -> State:
        """What the page shows when it is opened without a link."""
        return cls({control.name: control.default for control in CONTROLS})

    @classmethod
    def from_query(cls, query: str) -> State:
        """The state that `query` wrote; of an empty query the first one.

        A field of text that a link leaves out is empty, not at its default: a link that was cut says no number. InputError of a name that
        is unknown or stands there twice.
        """
        if query == "":
            return cls.first()
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=len(CONTROLS) + 1)
        texts = dict(pairs)
        if len(texts) != len(pairs):
            raise InputError("link: a name is given twice.", source="link", remedy=_OPEN)
        # Links of before knew no other unit.
        return cls({control.name: "" for control in CONTROLS if control.words is None} | {"unit": NAMED["unit"].default} | texts)

    @classmethod
    def of_run(cls, run: Run, base: State | None = None) -> State:
        """The state that shows `run`; what a run does not say, such as delta, is as in `base`."""
        texts = dict((base or cls.first()).texts)
        document = run.to_document()
        batches, loss = document.pop("batches"), document.pop("loss")
        texts |= {"design": batches.pop("design"), "loss": loss.pop("kind")}
        texts["size"] = _text(batches.pop("size", None))
        texts |= {name: _text(loss.pop(name, None)) for name in loss_parameters()}
        texts["intercept"] = texts["intercept"] or "false"
        length = "passes" if "passes" in document else "steps"
        texts |= {"length": length, "count": _text(document.pop(length))}
        texts["noise"] = _text(document.pop("noise_multiplier"))
        texts["find"] = "noise" if run.noise_multiplier is None else "epsilon"
        regulariser = document.pop("regulariser")
        plain = isinstance(regulariser, dict) and regulariser["kind"] == "ridge"
        texts["ridge"] = _text(regulariser["strength"] if plain else None)
        texts["unit"] = document.pop("unit", "record")
        for name in ("records", "step_size", "clip_norm", "noise_at", "release", "neighbours"):
            texts[name] = _text(document.pop(name))
        rest = document | ({} if plain or regulariser is None else {"regulariser": regulariser})
        rest |= {name: part for name, part in (("batches", batches), ("loss", loss)) if part}
        texts["more"] = to_json(rest, indent=None).strip() if rest else ""
        return cls(texts)

    def with_texts(self, **values: Any) -> State:
        """A copy in which these controls say something else; None: nothing."""
        return State({**self.texts, **{name: _text(value) for name, value in values.items()}})

    def query(self) -> str:
        """The state as the query of a link; what is empty is left out."""
        return query_of(self.texts)

    def question(self) -> Question:
        """What the controls ask; InputError where the texts make no run."""
        document = self._document()
        find_noise = self.texts["find"] == "noise"
        if find_noise and type(document.get("noise_multiplier")) in (int, float):
            del document["noise_multiplier"]
        rest = {name: self._value(name) for name in ("epsilon", "delta", "dimension", "initial_gap") if name != "epsilon" or find_noise}
        return Question(run=Run.from_document(document), find_noise=find_noise, epsilon=rest.pop("epsilon", None), **rest)

    def _document(self) -> dict[str, Any]:
        """The run's document; what is empty is left out, and is the run's to refuse."""
        texts = self.texts
        batches = {"design": texts["design"]} | ({} if texts["design"] == "full" else self._given("size"))
        names = [name for name in loss_parameters() if name in LOSSES[texts["loss"]].model_fields]
        document: dict[str, Any] = {
            **self._given("records", "step_size", "clip_norm"),
            "batches": batches,
            "loss": {"kind": texts["loss"], **self._given(*names)},
            "noise_at": texts["noise_at"],
            "release": texts["release"],
            "neighbours": texts["neighbours"],
            "unit": texts["unit"],
        }
        for name, field in (("count", texts["length"]), ("noise", "noise_multiplier")):
            if (value := self._value(name)) is not None:
                document[field] = value
        if (strength := self._value("ridge")) is not None:
            document["regulariser"] = {"kind": "ridge", "strength": strength}
        more = self._value("more")
        if not isinstance(more, dict | None):
            raise InputError(f"more: got {self.texts['more']!r}; it needs fields of a run, such as {{clip_method: normalise}}.")
        for name, value in (more or {}).items():
            inside = _INSIDE.get(name)
            if inside is not None and isinstance(value, dict) and not inside & value.keys():
                document[name] = {**document[name], **value}
            elif name in (*document, "passes", "steps", "noise_multiplier", "clip_norm", "step_size", "records"):
                source = f"more = {self.texts['more']}"
                raise InputError(f"more: {name} is set by a control of its own.", source=source, remedy="use that one.")
            else:
                document[name] = value
        return document

    def _given(self, *names: str) -> dict[str, Any]:
        return {name: value for name in names if (value := self._value(name)) is not None}

    def _value(self, name: str) -> Any:
        return parse_value(self.texts[name], name)


def query_of(values: Mapping[str, Any]) -> str:
    """The query of a link that sets every control to what a page sent of it, whatever that is: whether it is a state, `from_query` says."""
    texts = {control.name: _text(values[control.name]) for control in CONTROLS}
    return urlencode({control.name: texts[control.name] for control in CONTROLS if texts[control.name] or control.words})


def _text(value: Any) -> str:
    """A value as a control holds it; JSON is YAML, too."""
    if value is None:
        return ""
    return value if isinstance(value, str) else to_json(value, indent=None).strip()
