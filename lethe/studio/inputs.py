"""The controls of the planner as inputs of a page, each with its label; what does not matter is hidden, not switched off."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from lethe.studio.controls import CONTROLS, Control
from lethe.studio.web import ui


def groups(texts: Mapping[str, str]) -> Any:
    """All controls under their headings, with these texts."""
    return ui.TagList(
        *(
            ui.tags.fieldset(ui.tags.legend(heading), *(_shown(control, texts[control.name]) for control in controls))
            for heading, controls in groupby(CONTROLS, key=lambda control: control.group)
        )
    )


def _shown(control: Control, text: str) -> Any:
    hint = ui.tags.p(control.hint, class_="hint", id=f"{control.name}-hint") if control.hint else None
    if control.words is None:
        made = ui.input_text(control.name, control.label, text, width="100%", spellcheck="false")
    else:
        made = ui.input_select(control.name, control.label, dict(control.words), selected=text, width="100%")
    shape = "control broad" if control.broad else "control"
    whole = ui.div(made, hint, class_=shape)
    if control.only is None:
        return whole
    other, words = control.only
    return ui.panel_conditional(f"{json.dumps(sorted(words))}.includes(input.{other})", whole, class_=shape)


def update(texts: Mapping[str, str]) -> None:
    """Put these texts into the controls of the page that is open."""
    for control in CONTROLS:
        if control.words is None:
            ui.update_text(control.name, value=texts[control.name])
        else:
            ui.update_select(control.name, selected=texts[control.name])
