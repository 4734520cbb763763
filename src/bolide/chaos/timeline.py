"""The timeline of a run as an SVG picture: faults, acknowledged sends, failed sends, failovers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from bolide.chaos.history import Fault, History, Mastership, Outcome

_WIDTH, _LEFT, _RIGHT = 1100, 70, 20
_PLOT, _TOP, _LANE = 180, 30, 16
_MOST_TICKS = 12
_FONT = 'font-size="11"'
_COLOURS = ("#c0392b", "#d35400", "#8e44ad", "#2c7fb8", "#16a085", "#7f6000", "#555555", "#b03a78")


def timeline_svg(history: History, title: str) -> str:
    """Faults as bars in lanes, acknowledged sends per second as a line, failures as red columns."""
    return _Picture(history, title).draw()


@dataclass(slots=True)
class _Scale:
    seconds: float

    def x(self, at: float) -> float:
        return _LEFT + at / self.seconds * (_WIDTH - _LEFT - _RIGHT)


class _Picture:
    def __init__(self, history: History, title: str) -> None:
        self._history = history
        self._title = title
        ends = [each.ended for each in history.sent] + [each.ended for each in history.faults]
        self._scale = _Scale(max([*ends, 1.0]))
        self._acknowledged = Counter(
            int(each.ended) for each in history.sent if each.outcome is Outcome.ACKNOWLEDGED
        )
        self._most = max([*self._acknowledged.values(), 1])
        self._lanes = lanes(history.faults)
        self._foot = _TOP + _PLOT + 24
        self._names = sorted({part for each in history.faults for part in each.nemesis.split("+")})

    def draw(self) -> str:
        count = max((lane for lane, _ in self._lanes), default=-1) + 1
        height = self._foot + count * _LANE + 20
        size = f'viewBox="0 0 {_WIDTH} {height}"'
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" {_FONT}>',
            f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
            f'<text x="{_LEFT}" y="18" font-size="13">{escape(self._title)}</text>',
            *self._axes(),
            *self._shadows(),
            *self._failures(),
            *self._rate(),
            *self._failovers(),
            *self._bars(),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def _axes(self) -> Iterable[str]:
        bottom = _TOP + _PLOT
        yield f'<path d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}" fill="none" stroke="#333"/>'
        step = nice_step(self._scale.seconds)
        at = 0.0
        while at <= self._scale.seconds:
            x = self._scale.x(at)
            yield f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{at:g} s</text>'
            at += step
        yield f'<text x="{_LEFT - 6}" y="{_TOP + 8}" text-anchor="end">{self._most}</text>'
        yield f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">0</text>'
        yield f'<text x="{_LEFT - 6}" y="{_TOP + 24}" text-anchor="end">sends/s</text>'

    def _shadows(self) -> Iterable[str]:
        for fault in self._history.faults:
            x, width = self._span(fault)
            yield (
                f'<rect x="{x:.1f}" y="{_TOP}" width="{width:.1f}" height="{_PLOT}"'
                ' fill="#f3e9dc"/>'
            )

    def _rate(self) -> Iterable[str]:
        points = [
            f"{self._scale.x(second + 0.5):.1f},{self._y(self._acknowledged[second]):.1f}"
            for second in range(int(self._scale.seconds))
        ]
        if points:
            yield f'<polyline points="{" ".join(points)}" fill="none" stroke="#1a6e2e"/>'

    def _failures(self) -> Iterable[str]:
        failed = Counter(
            int(each.ended)
            for each in self._history.sent
            if each.error or each.outcome in {Outcome.UNKNOWN, Outcome.WEAK}
        )
        width = max(self._scale.x(1) - self._scale.x(0) - 0.5, 0.5)
        for second, count in sorted(failed.items()):
            y = self._y(min(count, self._most))
            yield (
                f'<rect x="{self._scale.x(second):.1f}" y="{y:.1f}" width="{width:.1f}"'
                f' height="{_TOP + _PLOT - y:.1f}" fill="#e0523f" fill-opacity="0.6"/>'
            )

    def _failovers(self) -> Iterable[str]:
        for change in failovers(self._history.masters):
            x = self._scale.x(change.at)
            yield (
                f'<path d="M{x:.1f} {_TOP}V{_TOP + _PLOT}" stroke="#2c3e9e"'
                ' stroke-dasharray="3 2"/>'
                f'<text x="{x + 2:.1f}" y="{_TOP + 10}" fill="#2c3e9e">'
                f"{escape(change.member or '')}</text>"
            )

    def _bars(self) -> Iterable[str]:
        for lane, fault in self._lanes:
            x, width = self._span(fault)
            y = self._foot + lane * _LANE
            colour = _COLOURS[self._names.index(fault.nemesis.split("+")[0]) % len(_COLOURS)]
            text = f"{fault.nemesis}: {', '.join(fault.targets)}"
            yield (
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_LANE - 4}"'
                f' fill="{colour}"><title>{escape(text)}</title></rect>'
                f'<text x="{x + width + 3:.1f}" y="{y + 10}" font-size="9">'
                f"{escape(fault.nemesis)}</text>"
            )

    def _span(self, fault: Fault) -> tuple[float, float]:
        x = self._scale.x(fault.began)
        return x, max(self._scale.x(fault.ended) - x, 1.0)

    def _y(self, count: int) -> float:
        return _TOP + _PLOT - count / self._most * (_PLOT - 10)


def lanes(faults: Iterable[Fault]) -> list[tuple[int, Fault]]:
    """Give each fault the first lane in which its name does not cover that of another."""
    free_from: list[float] = []
    found = []
    ordered = sorted(faults, key=lambda each: each.began)
    span = max([each.ended for each in ordered], default=1.0)
    for fault in ordered:
        text_width = len(fault.nemesis) * 5 / (_WIDTH - _LEFT - _RIGHT) * span
        lane = next((n for n, end in enumerate(free_from) if end <= fault.began), len(free_from))
        if lane == len(free_from):
            free_from.append(0.0)
        free_from[lane] = fault.ended + text_width
        found.append((lane, fault))
    return found


def failovers(masters: Sequence[Mastership]) -> list[Mastership]:
    """The changes from one member to another; a group without a master is none."""
    known: dict[str, str] = {}
    found = []
    for each in masters:
        if each.member is None:
            continue
        if known.get(each.group, each.member) != each.member:
            found.append(each)
        known[each.group] = each.member
    return found


def nice_step(seconds: float) -> float:
    """Distance of the ticks of an axis: 1, 2 or 5 times a power of ten."""
    for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
        if seconds / step <= _MOST_TICKS:
            return float(step)
    return 2000.0
