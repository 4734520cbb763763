"""Charts over time; a gap in the figures is a gap in the line."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from nicegui import ui

from bolide.console.ui.props import name_element

_PAUSE = 2.5
"""A pause that is so many times as long as usual is a gap."""
COLORS = ("#4c6ef5", "#f08c00", "#0ca678", "#e64980", "#7950f2", "#15aabf", "#82c91e", "#868e96")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float | None]]
    """Milliseconds since 1970 and the value; None is unknown."""


def joined(points: Sequence[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """Points of rare samples as one line: a large cluster is sampled one group after the other.

    Steps without a sample are left out where samples are as far apart as usual. Longer pauses stay
    gaps.
    """
    known = [number for number, (_, value) in enumerate(points) if value is not None]
    distances = [later - earlier for earlier, later in pairwise(known)]
    if not distances:
        return list(points)
    usual = median(distances)
    between: set[int] = set()
    for earlier, later in pairwise(known):
        if later - earlier <= usual * _PAUSE:
            between.update(range(earlier + 1, later))
    return [point for number, point in enumerate(points) if number not in between]


class TimeChart:
    """Lines over time, with a legend; `show` replaces the figures."""

    def __init__(
        self,
        label: str,
        *,
        area: bool = False,
        height: int = 220,
        whole: bool = False,
        utc: bool = False,
    ) -> None:
        """Create an empty chart in the current place.

        Args:
            label: names it for screen readers.
            area: whether the area below the lines is filled.
            height: in pixels.
            whole: whether values are numbers of things, which have no fractions.
            utc: whether times are shown in UTC; otherwise in the zone of the browser.
        """
        self._area = area
        self.element = ui.echart(
            {
                "animation": False,
                "color": list(COLORS),
                "aria": {"enabled": True},
                "useUTC": utc,
                "grid": {"left": 8, "right": 12, "top": 28, "bottom": 4, "containLabel": True},
                "legend": {"type": "scroll", "top": 0, "left": 0, "itemHeight": 8,
                           "textStyle": {"color": "#868e96"}},
                "tooltip": {"trigger": "axis", "confine": True},
                "xAxis": {"type": "time", "axisLabel": {"color": "#868e96", "hideOverlap": True},
                          "splitLine": {"show": False},
                          "axisLine": {"lineStyle": {"color": "#868e9655"}}},
                "yAxis": {"type": "value", "min": 0, "axisLabel": {"color": "#868e96"},
                          "splitLine": {"lineStyle": {"color": "#868e9633"}},
                          **({"minInterval": 1} if whole else {})},
                "series": [],
            }
        )  # fmt: skip
        self.element.classes("chart").style(f"height: {height}px")
        name_element(self.element.props("role=img"), label)

    def show(self, lines: Sequence[Line]) -> None:
        """Draw these lines instead of those before; one alone needs no legend."""
        self.element.options["legend"]["show"] = len(lines) > 1
        self.element.options["grid"]["top"] = 28 if len(lines) > 1 else 12
        self.element.options["series"] = [
            {
                "name": line.name,
                "type": "line",
                "showSymbol": len([1 for _, value in line.points if value is not None]) < 3,
                "connectNulls": False,
                "lineStyle": {"width": 2},
                "areaStyle": {"opacity": 0.12} if self._area else None,
                "data": [[at, value] for at, value in line.points],
            }
            for line in lines
        ]
        self.element.update()
