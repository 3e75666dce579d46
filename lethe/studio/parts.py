"""The answers of the planner as parts of a page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lethe.calculus.upward_formatting import shown
from lethe.studio.answers import StateAnswer
from lethe.studio.picture import schedule_svg
from lethe.studio.prices import AlternativePrice
from lethe.studio.web import ui

_SEEN = {"last": "if only the final parameters are seen", "all": "whatever is seen of the training"}
_CHANGED = {"replace_one": "replaced by another", "zero_out": "left without gradient", "add_or_remove": "added or removed"}


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
    wanted, unit = (noise, name) if answer.found_noise else (epsilon, "epsilon")
    where = f"({epsilon}, {answer.delta:g})-DP for one {answer.unit} {_CHANGED[answer.neighbours]}, {_SEEN[answer.release]}"
    number = ui.tags.p(ui.tags.span(wanted, id="wanted"), " ", ui.tags.small(unit), class_="number")
    if answer.epsilon == math.inf:
        return ui.TagList(number, *(refusal(note) for note in answer.notes))
    return ui.TagList(
        number,
        ui.tags.p(f"{where}: {name} {noise}, {answer.steps} steps, by {answer.theorem}."),
        *(ui.tags.p(note, class_="small-print") for note in answer.notes),
    )


def theorems(answer: StateAnswer) -> Any:
    """Every theorem's epsilon, or why it does not apply."""
    rows = [
        ui.tags.tr(
            ui.tags.th(row.theorem, scope="row"),
            ui.tags.td(row.epsilon or "–", class_="amount"),
            ui.tags.td(row.why),
            class_="used" if row.used else "",
        )
        for row in answer.theorems
    ]
    return _table(("Theorem", "Epsilon", "Why, or why not"), rows, "Epsilon by theorem")


def schedule(answer: StateAnswer) -> Any:
    """The picture, and in words how many steps have noise."""
    return ui.TagList(
        ui.HTML(schedule_svg(answer.schedule, answer.steps)),
        ui.tags.p(f"Noise multiplier of each step: {answer.noisy_steps} of {answer.steps} steps have noise.", class_="small-print"),
    )


def prediction(answer: StateAnswer) -> Any:
    """The predicted risk, marked as what it is."""
    if answer.risk.value == "":
        return ui.tags.p(answer.risk.words, class_="reason")
    number = ui.tags.p(answer.risk.value, " ", ui.tags.small("expected excess risk, at most"), class_="number")
    words = ui.tags.pre(answer.risk.words, class_="code", tabindex="0", role="region", aria_label="What the prediction rests on")
    return ui.TagList(number, words, ui.tags.p("A prediction from what was declared, not part of the guarantee.", class_="small-print"))


def prices(found: Mapping[str, AlternativePrice | None], labels: tuple[str, ...], *, noise: bool) -> Any:
    """What each alternative costs; those that are not computed yet say so.

    Args:
        found: what is computed so far, by label; None where the run has it already.
        labels: all alternatives, in order.
        noise: whether noise was looked for, or else epsilon.
    """
    rows = [_price_row(label, found.get(label, "…")) for label in labels if found.get(label, "…") is not None]
    return _table(("Change", "Noise needed" if noise else "Epsilon", "Against this run"), rows, "Price of alternatives")


def _price_row(label: str, price: AlternativePrice | str | None) -> Any:
    if not isinstance(price, AlternativePrice):
        return ui.tags.tr(ui.tags.th(label, scope="row"), ui.tags.td("…", class_="amount"), ui.tags.td("computing"))
    ratio = "" if price.ratio is None else f"{price.ratio:.3g} times"
    ratio = "the same" if ratio == "1 times" else ratio
    return ui.tags.tr(
        ui.tags.th(label, scope="row"), ui.tags.td(price.number or "–", class_="amount"), ui.tags.td(price.why or ratio), data_price=label
    )


def documents(answer: StateAnswer) -> Any:
    """The run as YAML and as Python, and the certificate in words."""
    return ui.TagList(
        _code("YAML", answer.yaml, "run-yaml"),
        _code("Python", answer.python, "run-py"),
        ui.tags.button("Save run.yaml", type="button", class_="btn-plain", data_save="run-yaml"),
        ui.tags.details(
            ui.tags.summary("The certificate in words"),
            ui.tags.pre(answer.explanation, class_="code", tabindex="0", role="region", aria_label="Certificate"),
            class_="mt-3",
        ),
    )


def _code(name: str, text: str, identifier: str) -> Any:
    copy = ui.tags.button(f"Copy {name}", type="button", class_="btn-plain", data_copy=identifier)
    return ui.TagList(
        ui.div(ui.tags.strong(name), copy, class_="buttons"),
        ui.tags.pre(text, id=identifier, class_="code", tabindex="0", role="region", aria_label=f"Run as {name}"),
    )


def _table(head: tuple[str, ...], rows: list[Any], caption: str) -> Any:
    cells = (ui.tags.th(word, scope="col") for word in head)
    body = ui.tags.table(ui.tags.thead(ui.tags.tr(*cells)), ui.tags.tbody(*rows), aria_label=caption)
    return ui.div(body, class_="wide", tabindex="0", role="region", aria_label=caption)
