"""The parts of the planner's page: its controls, each with its label, and its answers.

app.py puts them into the page: it passes answers (answers.py), and gets HTML.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from lethe.calculus.upward_formatting import shown
from lethe.studio.answers import ALTERNATIVES, AlternativePrice, StateAnswer, TheoremRow
from lethe.studio.controls import CONTROLS, Control
from lethe.studio.picture import priced_labels
from lethe.studio.web import ui

_SEEN = {"last": "if only the final parameters are seen", "all": "whatever is seen of the training"}
_CHANGED = {"replace_one": "replaced by another", "zero_out": "left without gradient", "add_or_remove": "added or removed"}
_WIDTH, _HEIGHT = 640.0, 240.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 84.0, 12.0, 14.0, 46.0
_MARKS_UP_TO = 60
_FRONT = ("records", "size", "count", "epsilon")


def controls(texts: Mapping[str, str], *below: Any) -> Any:
    """The few of the first screen; folded away, all others under headings and what stands `below` them. What does not matter is hidden.

    The page's script moves the noise to the front where it is what is set.
    """
    front = sorted((control for control in CONTROLS if control.front), key=lambda control: _FRONT.index(control.name))
    folded = groupby((control for control in CONTROLS if not control.front), key=lambda control: control.group)
    fields = (
        ui.tags.fieldset(ui.tags.legend(heading), *(_control(field, texts[field.name]) for field in group)) for heading, group in folded
    )
    return ui.TagList(
        ui.tags.fieldset(*(_control(control, texts[control.name]) for control in front), id="front", aria_label="The run in short"),
        ui.tags.details(ui.tags.summary("All settings"), *fields, *below, class_="settings"),
    )


def _control(control: Control, text: str) -> Any:
    hint = ui.tags.p(control.hint, class_="hint", id=f"{control.name}-hint") if control.hint else None
    if control.words is None:
        label = ui.span(control.label, id="count-words") if control.name == "count" else control.label
        field = ui.input_text(control.name, label, text, width="100%", spellcheck="false")
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
        ui.tags.p(f"Predicted excess risk: at most {answer.risk.value}.", class_="small-print") if answer.risk.value else None,
        *(ui.tags.p(note, class_="small-print") for note in answer.notes),
    )


def theorems(answer: StateAnswer) -> Any:
    """Every theorem's epsilon; folded away, why the others do not apply."""
    head = ("Theorem", "Epsilon", "Why, or why not")
    applicable, others = ([row for row in answer.theorems if bool(row.epsilon) is applies] for applies in (True, False))

    def table(rows: Iterable[TheoremRow]) -> Any:
        cells = (_row(row.theorem, row.epsilon or "–", row.why, head, class_="strong" if row.used else "") for row in rows)
        return _table(head, cells, "Epsilon by theorem")

    count = f"{len(others)} do{'es' if len(others) == 1 else ''} not apply"
    return ui.TagList(table(applicable), ui.tags.details(ui.tags.summary(count), table(others)) if others else None)


def schedule(answer: StateAnswer) -> Any:
    """The picture, and in words how many steps have noise; nothing of constant noise, which is no picture."""
    if len({level for _, level in answer.schedule}) <= 1 and answer.noisy_steps == answer.steps:
        return None
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
    head = ("Change", "Noise needed" if noise else "Epsilon", "Against this run")
    marks = {label: str(number) for number, label in enumerate(priced_labels(prices_by_label), start=1)}
    labels = (label for label in ALTERNATIVES if prices_by_label.get(label, "…") is not None)
    rows = (_price_row(label, prices_by_label.get(label, "…"), marks.get(label, ""), head) for label in labels)
    return _table(head, rows, "Price of alternatives")


def _price_row(label: str, price: AlternativePrice | str | None, mark: str, head: tuple[str, ...]) -> Any:
    if not isinstance(price, AlternativePrice):
        return _row(label, "…", "computing", head)
    ratio = "" if price.ratio is None else f"{price.ratio:.3g} times"
    take = ui.tags.button(label, type="button", class_="btn-link", data_alternative=label) if price.number else label
    name = ui.TagList(ui.span(mark, class_="mark-number"), take) if mark else take
    return _row(name, price.number or "–", price.why or ("the same" if ratio == "1 times" else ratio), head, data_price=label)


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


def _row(name: Any, amount: str, words: str, head: tuple[str, ...], **attributes: str) -> Any:
    cells = (ui.tags.td(cell, role="cell", data_label=label) for cell, label in zip((amount, words), head[1:], strict=True))
    return ui.tags.tr(ui.tags.th(name, scope="row", role="rowheader"), *cells, role="row", **attributes)


def _table(head: tuple[str, ...], rows: Iterable[Any], caption: str) -> Any:
    # The roles are written out because a style that stacks the cells on telephones would take them away.
    cells = (ui.tags.th(word, scope="col", role="columnheader") for word in head)
    top = ui.tags.thead(ui.tags.tr(*cells, role="row"), role="rowgroup")
    return ui.tags.table(top, ui.tags.tbody(*rows, role="rowgroup"), aria_label=caption, role="table", class_="wordy")
