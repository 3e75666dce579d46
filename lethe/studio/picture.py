"""The noise schedule as a picture: plain SVG, drawn in the colours of the page, light or dark."""

from __future__ import annotations

from collections.abc import Sequence

from lethe.calculus.upward_formatting import shown

_WIDTH, _HEIGHT = 640.0, 240.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 84.0, 12.0, 14.0, 46.0
_MARKS_UP_TO = 60


def schedule_svg(points: Sequence[tuple[int, float]], steps: int) -> str:
    """A line, or marks where there are few, of the noise multiplier against the step; the axis of the noise begins at 0.

    Args:
        points: (step from 1, noise multiplier >= 0), in order, at least one.
        steps: of the whole run.
    """
    highest = max(level for _, level in points)
    top = highest or 1.0
    across = [_LEFT + (_WIDTH - _LEFT - _RIGHT) * (step - 1) / max(steps - 1, 1) for step, _ in points]
    up = [_TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - 0.95 * level / top) for _, level in points]
    places = list(zip(across, up, strict=True))
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    marks = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places) if len(places) <= _MARKS_UP_TO else ""
    base, end = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    roof = _TOP + 0.05 * (base - _TOP)
    low = min(level for _, level in points)
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
