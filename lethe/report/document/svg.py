"""An SVG made fit to stand in a page: colours that follow the page's, no names that meet others, nothing that refers outside."""

from __future__ import annotations

import re
from xml.etree import ElementTree

INK, MUTED, GRID, MAIN, OTHER, ALERT = "#010101", "#020202", "#030303", "#040404", "#050505", "#060606"
"""Colours to draw with; in the page they are its own, light or dark."""

_ROLES = {INK: "ink", MUTED: "muted", GRID: "grid", MAIN: "main", OTHER: "other", ALERT: "alert"}
_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"


def for_page(drawn: str, name: str, alt: str) -> str:
    """The SVG as part of an HTML page.

    Args:
        drawn: as matplotlib wrote it.
        name: what its names begin with, so that no two drawings share one.
        alt: what is to be seen, for whoever does not see it.
    """
    root = ElementTree.fromstring(drawn)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("metadata", "style")):
                parent.remove(child)
    used = set(re.findall(r"#([\w-]+)", " ".join(value for one in root.iter() for value in one.attrib.values() if "#" in value)))
    for one in root.iter():
        one.tag = one.tag.removeprefix(_SVG)
        link = one.attrib.pop(_LINK, None)
        if link is not None:
            one.set("href", f"#{name}-{link.removeprefix('#')}")
        label = one.attrib.pop("id", None)
        if label in used:
            one.set("id", f"{name}-{label}")
        for key in ("style", "clip-path", "fill", "stroke"):
            if (value := one.get(key)) is not None:
                one.set(key, _recoloured(value.replace("url(#", f"url(#{name}-")))
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("role", "img")
    root.set("aria-label", alt)
    root.set("focusable", "false")
    return ElementTree.tostring(root, encoding="unicode")


def _recoloured(style: str) -> str:
    for colour, role in _ROLES.items():
        style = style.replace(colour, f"var(--{role})")
    return style
