"""The picture of the planner: epsilon against noise for this run, and where its alternatives stand, as plain SVG in the page's colours.

app.py draws it from a `StateAnswer` and the prices of its alternatives.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from lethe.calculus.upward_formatting import shown
from lethe.studio.answers import ALTERNATIVES, AlternativePrice, StateAnswer

_WIDTH, _HEIGHT = 400.0, 230.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 40.0, 388.0, 15.0, 196.0
_NEAR, _LIFT = 15.0, 16.0  # how close two marks may stand, and by how much one is moved out of another's way
_WIDEST = 6.0  # times the noise or the epsilon of the run: what is further away stands at the edge


def priced_labels(prices: Mapping[str, AlternativePrice | None]) -> tuple[str, ...]:
    """The alternatives that have a number, in the order of the page: the first is marked 1 in the picture and in the table."""
    return tuple(label for label in ALTERNATIVES if (price := prices.get(label)) is not None and price.ratio is not None)


def price_svg(answer: StateAnswer, curve: Sequence[tuple[float, float]], prices: Mapping[str, AlternativePrice | None]) -> str:
    """Epsilon against noise: the line of this run, a dot where it stands, a numbered mark for each alternative. "" where none is finite.

    The page's script reads of the data which field a pointer sets: the target epsilon up, or the noise across.

    Args:
        answer: of the run.
        curve: (largest noise multiplier, epsilon) of the run with other noise; what is not computed yet is missing.
        prices: of the alternatives, by their labels; their noise at the run's epsilon, or their epsilon at its noise.
    """
    noise, epsilon = answer.noise, answer.epsilon
    if not (0.0 < noise < math.inf and 0.0 < epsilon < math.inf):
        return ""
    points = sorted({(noise, epsilon), *((x, y) for x, y in curve if 0.0 < x < math.inf and 0.0 < y < math.inf)})
    labels = priced_labels(prices)
    ratios = [min(max(price.ratio, 1.0 / _WIDEST), _WIDEST) for label in labels if (price := prices[label]) and price.ratio]
    centre = noise if answer.found_noise else epsilon
    reach = [centre * ratio for ratio in (*ratios, 0.25, 4.0)]
    across = _Axis(_LEFT, _RIGHT, [x for x, _ in points] + (reach if answer.found_noise else [noise / 4.0, 4.0 * noise]))
    up = _Axis(_BOTTOM, _TOP, [y for _, y in points] + ([epsilon / 4.0, 4.0 * epsilon] if answer.found_noise else reach))
    x, y = across(noise), up(epsilon)
    line = " ".join(f"{across(level):.1f},{up(bound):.1f}" for level, bound in points)
    places = [across(centre * ratio) if answer.found_noise else up(centre * ratio) for ratio in ratios]
    marks = "".join(_marks(labels, places, (x, y), flat=answer.found_noise))
    field, axis = ("epsilon", up) if answer.found_noise else ("noise", across)
    if field == "noise" and len({level for _, level in answer.schedule}) > 1:
        field = ""  # a number would replace the schedule
    where = f'data-field="{field}" data-start="{axis.start:g}" data-end="{axis.end:g}" data-low="{axis.low!r}" data-high="{axis.high!r}"'
    words = (
        f"Epsilon against the noise multiplier: this run has noise {shown(noise)} and epsilon {shown(epsilon)}; {len(labels)} alternatives"
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" aria-label="{words}" class="price" {where}>'
        f'<g class="axes"><path d="M{_LEFT:g} {_TOP:g}V{_BOTTOM:g}H{_RIGHT:g}"/>{across.ticks(upright=True)}{up.ticks(upright=False)}'
        f'<text x="{(_LEFT + _RIGHT) / 2:g}" y="{_HEIGHT - 4:g}" text-anchor="middle">noise multiplier</text>'
        f'<text x="4" y="{_TOP - 4:g}">epsilon</text></g>'
        f'<polyline class="curve" points="{line}"/>{marks}'
        f'<g class="guide"><path d=""/><text x="{_RIGHT:g}" y="{_TOP + 6:g}" text-anchor="end"></text></g>'
        f'<circle class="chosen" cx="{x:.1f}" cy="{y:.1f}" r="6"><title>this run</title></circle></svg>'
    )


class _Axis:
    """A logarithmic axis from `start` to `end` of the picture, as long as these values need."""

    def __init__(self, start: float, end: float, values: Iterable[float]) -> None:
        values = list(values)
        self.start, self.end, self.low, self.high = start, end, min(values), max(values)

    def __call__(self, value: float) -> float:
        return self.start + (self.end - self.start) * math.log(value / self.low) / math.log(self.high / self.low)

    def ticks(self, *, upright: bool) -> str:
        """Pale lines with their numbers, at 1, 2 and 5 times powers of ten."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        levels = [head * 10.0**power for power in decades for head in (1, 2, 5) if self.low <= head * 10.0**power <= self.high]
        return "".join(self._tick(level, self(level), upright) for level in levels)

    def _tick(self, level: float, at: float, upright: bool) -> str:
        if upright:
            text = f'<text x="{at:.1f}" y="{_BOTTOM + 13:g}" text-anchor="middle">{level:g}</text>'
            return f'<path class="grid" d="M{at:.1f} {_TOP:g}V{_BOTTOM:g}"/>{text}'
        text = f'<text x="{_LEFT - 4:g}" y="{at + 3:.1f}" text-anchor="end">{level:g}</text>'
        return f'<path class="grid" d="M{_LEFT:g} {at:.1f}H{_RIGHT:g}"/>{text}'


def _marks(labels: Sequence[str], places: Sequence[float], chosen: tuple[float, float], *, flat: bool) -> Iterable[str]:
    """A numbered mark for each alternative, on a stem where it would cover another; `flat`: along the run's epsilon, else its noise."""
    standing: list[tuple[float, int]] = [(chosen[0] if flat else chosen[1], 0)]
    for number, (label, place) in enumerate(zip(labels, places, strict=True), start=1):
        level = next(level for level in range(len(labels) + 2) if all(abs(place - at) >= _NEAR or level != row for at, row in standing))
        standing.append((place, level))
        if flat:
            foot, mark = (place, chosen[1]), (place, chosen[1] - _LIFT * level)
        else:
            foot, mark = (chosen[0], place), (chosen[0] + _LIFT * level, place)
        yield (
            f'<g class="mark" data-alternative="{escape(label)}"><title>{escape(label)}</title>'
            f'<path d="M{foot[0]:.1f} {foot[1]:.1f}L{mark[0]:.1f} {mark[1]:.1f}"/><circle cx="{mark[0]:.1f}" cy="{mark[1]:.1f}" r="7"/>'
            f'<text x="{mark[0]:.1f}" y="{mark[1] + 3.2:.1f}" text-anchor="middle">{number}</text></g>'
        )
