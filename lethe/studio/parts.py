"""The parts of the planner's page: its controls, each with its label, and its answers."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from lethe.calculus.upward_formatting import shown
from lethe.studio.answers import ALTERNATIVES, AlternativePrice, StateAnswer
from lethe.studio.controls import CONTROLS, Control
from lethe.studio.web import ui

_SEEN = {"last": "if only the final parameters are seen", "all": "whatever is seen of the training"}
_CHANGED = {"replace_one": "replaced by another", "zero_out": "left without gradient", "add_or_remove": "added or removed"}
_WIDTH, _HEIGHT = 640.0, 240.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 84.0, 12.0, 14.0, 46.0
_MARKS_UP_TO = 60


def controls(texts: Mapping[str, str]) -> Any:
    """All controls under their headings, with these texts; what does not matter is hidden, not switched off."""
    return ui.TagList(
        *(
            ui.tags.fieldset(ui.tags.legend(heading), *(_control(field, texts[field.name]) for field in group))
            for heading, group in groupby(CONTROLS, key=lambda control: control.group)
        )
    )


def _control(control: Control, text: str) -> Any:
    hint = ui.tags.p(control.hint, class_="hint", id=f"{control.name}-hint") if control.hint else None
    if control.words is None:
        field = ui.input_text(control.name, control.label, text, width="100%", spellcheck="false")
    else:
        field = ui.input_select(control.name, control.label, dict(control.words), selected=text, width="100%")
    shape = "control broad" if control.broad else "control"
    whole = ui.div(field, hint, class_=shape)
    if control.only is None:
        return whole
    depends_on, words = control.only
    return ui.panel_conditional(f"{json.dumps(sorted(words))}.includes(input.{depends_on})", whole, class_=shape)


def update_controls(texts: Mapping[str, str]) -> None:
    """Put these texts into the controls of the page that is open."""
    for control in CONTROLS:
        if control.words is None:
            ui.update_text(control.name, value=texts[control.name])
        else:
            ui.update_select(control.name, selected=texts[control.name])


def refusal(text: str) -> Any:
    """What stands where a number would be."""
    return ui.tags.p(text, class_="refusal")


def nothing(text: str) -> Any:
    """What stands in all other places while the headline shows this refusal."""
    return ui.tags.p("Nothing to show.", class_="waiting", title=text.partition("\n")[0])


def waiting() -> Any:
    """While a number is being computed; the number of another run would be a wrong one."""
    return ui.tags.p("Computing …", class_="waiting")


def headline(answer: StateAnswer) -> Any:
    """The number that was asked for, and what it means in a sentence."""
    epsilon, noise = shown(answer.epsilon), shown(answer.noise)
    name = "noise multiplier" if len({level for _, level in answer.schedule}) == 1 else "largest noise multiplier"
    result, unit = (noise, name) if answer.found_noise else (epsilon, "epsilon")
    where = f"({epsilon}, {answer.delta:g})-DP for one {answer.unit} {_CHANGED[answer.neighbours]}, {_SEEN[answer.release]}"
    number = ui.tags.p(ui.tags.span(result, id="wanted"), " ", ui.tags.small(unit), class_="number")
    if answer.epsilon == math.inf:
        return ui.TagList(number, *(refusal(note) for note in answer.notes))
    return ui.TagList(
        number,
        ui.tags.p(f"{where}: {name} {noise}, {answer.steps} steps, by {answer.theorem}."),
        *(ui.tags.p(note, class_="small-print") for note in answer.notes),
    )


def theorems(answer: StateAnswer) -> Any:
    """Every theorem's epsilon, or why it does not apply."""
    rows = (_row(row.theorem, row.epsilon or "–", row.why, class_="used" if row.used else "") for row in answer.theorems)
    return _table(("Theorem", "Epsilon", "Why, or why not"), rows, "Epsilon by theorem")


def schedule(answer: StateAnswer) -> Any:
    """The picture, and in words how many steps have noise."""
    return ui.TagList(
        ui.HTML(schedule_svg(answer.schedule, answer.steps)),
        ui.tags.p(f"Noise multiplier of each step: {answer.noisy_steps} of {answer.steps} steps have noise.", class_="small-print"),
    )


def schedule_svg(points: Sequence[tuple[int, float]], steps: int) -> str:
    """Noise multipliers of steps from 1, in order and at least one, as a line, or marks where there are few: plain SVG in the colours of
    the page, light or dark, whose axis of the noise begins at 0.
    """
    low, highest = min(level for _, level in points), max(level for _, level in points)
    base, end = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    roof, top = _TOP + 0.05 * (base - _TOP), highest or 1.0
    coordinates = [
        (_LEFT + (end - _LEFT) * (step - 1) / max(steps - 1, 1), _TOP + (base - _TOP) * (1 - 0.95 * level / top)) for step, level in points
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in coordinates)
    marks = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in coordinates) if len(coordinates) <= _MARKS_UP_TO else ""
    words = f"Noise multiplier at each of {steps} steps, between {shown(low)} and {shown(highest)} where there is noise"
    return (
        f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" aria-label="{words}" class="schedule">'
        f'<g class="axes"><path d="M{_LEFT:g} {_TOP:g}V{base:g}H{end:g}"/><path class="grid" d="M{_LEFT:g} {roof:g}H{end:g}"/></g>'
        f'<g class="line"><polyline points="{line}"/>{marks}</g>'
        f'<g class="words"><text x="{_LEFT - 6:g}" y="{base:g}" text-anchor="end">0</text>'
        f'<text x="{_LEFT - 6:g}" y="{roof + 4:g}" text-anchor="end">{shown(highest)}</text>'
        f'<text x="{_LEFT:g}" y="{base + 30:g}">1</text><text x="{end:g}" y="{base + 30:g}" text-anchor="end">{steps}</text>'
        f'<text x="{(_LEFT + end) / 2:g}" y="{base + 30:g}" text-anchor="middle">step</text></g></svg>'
    )


def prediction(answer: StateAnswer) -> Any:
    """The predicted risk, marked as what it is."""
    if answer.risk.value == "":
        return ui.tags.p(answer.risk.words, class_="reason")
    number = ui.tags.p(answer.risk.value, " ", ui.tags.small("expected excess risk, at most"), class_="number")
    note = ui.tags.p("A prediction from what was declared, not part of the guarantee.", class_="small-print")
    return ui.TagList(number, _text(answer.risk.words, "What the prediction rests on"), note)


def prices(prices_by_label: Mapping[str, AlternativePrice | None], *, noise: bool) -> Any:
    """What each alternative costs, noise or else epsilon; those not computed yet say so, those that the run has already are left out."""
    rows = (_price_row(label, prices_by_label.get(label, "…")) for label in ALTERNATIVES if prices_by_label.get(label, "…") is not None)
    return _table(("Change", "Noise needed" if noise else "Epsilon", "Against this run"), rows, "Price of alternatives")


def _price_row(label: str, price: AlternativePrice | str | None) -> Any:
    if not isinstance(price, AlternativePrice):
        return _row(label, "…", "computing")
    ratio = "" if price.ratio is None else f"{price.ratio:.3g} times"
    return _row(label, price.number or "–", price.why or ("the same" if ratio == "1 times" else ratio), data_price=label)


def documents(answer: StateAnswer) -> Any:
    """The run as YAML and as Python, and the certificate in words."""
    return ui.TagList(
        _code("YAML", answer.yaml, "run-yaml"),
        _code("Python", answer.python, "run-py"),
        ui.tags.button("Save run.yaml", type="button", class_="btn-plain", data_save="run-yaml"),
        ui.tags.details(ui.tags.summary("The certificate in words"), _text(answer.explanation, "Certificate"), class_="mt-3"),
    )


def _code(name: str, text: str, identifier: str) -> Any:
    copy = ui.tags.button(f"Copy {name}", type="button", class_="btn-plain", data_copy=identifier)
    return ui.TagList(ui.div(ui.tags.strong(name), copy, class_="buttons"), _text(text, f"Run as {name}", id=identifier))


def _text(text: str, label: str, **attributes: str) -> Any:
    return ui.tags.pre(text, class_="code", tabindex="0", role="region", aria_label=label, **attributes)


def _row(name: str, amount: str, words: str, **attributes: str) -> Any:
    return ui.tags.tr(ui.tags.th(name, scope="row"), ui.tags.td(amount, class_="amount"), ui.tags.td(words), **attributes)


def _table(head: tuple[str, ...], rows: Iterable[Any], caption: str) -> Any:
    cells = (ui.tags.th(word, scope="col") for word in head)
    body = ui.tags.table(ui.tags.thead(ui.tags.tr(*cells)), ui.tags.tbody(*rows), aria_label=caption)
    return ui.div(body, class_="wide", tabindex="0", role="region", aria_label=caption)
