"""Line plots as SVG."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 720, 320, 64, 48, 16, 160
_COLOURS = ("#c2410c", "#475569", "#0f766e", "#7c3aed")
_TICKS = 5


def lines(rows: Mapping[str, Points], across: str, up: str) -> str:
    """Draw one line per row; both axes begin at 0."""
    most_x = max((x for points in rows.values() for x, _ in points), default=0.0) or 1.0
    most_y = 1.1 * max((y for points in rows.values() for _, y in points), default=0.0) or 1.0
    parts = [*_axes(most_x, most_y, across, up)]
    for number, (name, points) in enumerate(rows.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [(_x(x, most_x), _y(y, most_y)) for x, y in points]
        parts += _line(name, places, colour)
    style = 'font-family="sans-serif" font-size="12" fill="#334155"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {style}>'
    white = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>'
    return "\n".join((head, white, *parts, "</svg>", ""))


def _x(value: float, most: float) -> float:
    return _LEFT + value / most * (_WIDTH - _LEFT - _RIGHT)


def _y(value: float, most: float) -> float:
    return _HEIGHT - _BOTTOM - value / most * (_HEIGHT - _BOTTOM - _TOP)


def _axes(most_x: float, most_y: float, across: str, up: str) -> Iterator[str]:
    for tick in range(_TICKS + 1):
        x, y = most_x * tick / _TICKS, most_y * tick / _TICKS
        right, height = _x(most_x, most_x), _y(y, most_y)
        yield f'<path d="M{_LEFT} {height:.1f}H{right:.1f}" stroke="#e2e8f0"/>'
        yield f'<text x="{_LEFT - 8}" y="{height + 4:.1f}" text-anchor="end">{y:.3g}</text>'
        below = _HEIGHT - _BOTTOM + 18
        yield f'<text x="{_x(x, most_x):.1f}" y="{below}" text-anchor="middle">{x:.3g}</text>'
    yield f'<text x="{_LEFT}" y="{_HEIGHT - 8}">{escape(across)}</text>'
    yield f'<text transform="translate(14 {_HEIGHT - _BOTTOM}) rotate(-90)">{escape(up)}</text>'


def _line(name: str, places: Sequence[tuple[float, float]], colour: str) -> Iterator[str]:
    if not places:
        return
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y in places:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>'
    x, y = places[-1]
    yield f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{escape(name)}</text>'
