"""Charts over time; a gap in the figures is a gap in the line."""

from collections.abc import Sequence
from dataclasses import dataclass

from nicegui import ui

COLORS = ("#4c6ef5", "#f08c00", "#0ca678", "#e64980", "#7950f2", "#15aabf", "#82c91e", "#868e96")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float | None]]
    """Milliseconds since 1970 and the value; None is unknown."""


class TimeChart:
    """Lines over time, with a legend; `show` replaces the figures."""

    def __init__(self, label: str, *, area: bool = False, height: int = 220) -> None:
        self._area = area
        self.element = ui.echart(
            {
                "animation": False,
                "color": list(COLORS),
                "aria": {"enabled": True},
                "grid": {"left": 8, "right": 12, "top": 28, "bottom": 4, "containLabel": True},
                "legend": {"type": "scroll", "top": 0, "left": 0, "itemHeight": 8,
                           "textStyle": {"color": "#868e96"}},
                "tooltip": {"trigger": "axis", "confine": True},
                "xAxis": {"type": "time", "axisLabel": {"color": "#868e96", "hideOverlap": True},
                          "splitLine": {"show": False},
                          "axisLine": {"lineStyle": {"color": "#868e9655"}}},
                "yAxis": {"type": "value", "min": 0, "axisLabel": {"color": "#868e96"},
                          "splitLine": {"lineStyle": {"color": "#868e9633"}}},
                "series": [],
            }
        )  # fmt: skip
        self.element.classes("chart").style(f"height: {height}px")
        self.element.props(f'role=img aria-label="{label.replace(chr(34), chr(39))}"')

    def show(self, lines: Sequence[Line]) -> None:
        """Draw these lines instead of those before."""
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
