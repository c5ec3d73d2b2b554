"""Plots as SVG, written by hand: curves on logarithmic axes and bars on a logarithmic scale. Pure."""

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import NamedTuple

WIDTH, HEIGHT = 800, 400
LEFT, RIGHT, TOP, BOTTOM = 78, 215, 50, 52
BAR, GAP, NAMES = 20, 9, 245
COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#8e5aa8", "#b8860b", "#4a5568", "#00a6a6", "#d1495b", "#7a9e1f")
_FONT = 'font-family="system-ui, sans-serif" font-size="12" fill="#222"'
_UNITS = {0: "1", 1: "10", 2: "100", 3: "1 000", 4: "10 000", 5: "100 000", 6: "1 000 000"}

Curve = Sequence[tuple[float, float]]


class Axis(NamedTuple):
    """A logarithmic axis in whole decades, laid over a span of the picture."""

    low: int
    high: int
    start: float
    end: float

    def place(self, value: float) -> float:
        """Return where a value lies."""
        share = (log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def decades(self) -> range:
        """Return the powers of ten on it."""
        return range(self.low, self.high + 1)


def _axis(values: Sequence[float], start: float, end: float) -> Axis:
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    return Axis(low, max(high, low + 1), start, end)


def _label(power: int) -> str:
    return _UNITS.get(power, f"{10.0**power:g}")


def _text(x: float, y: float, words: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {_FONT} {more}>{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str = "#ddd", width: float = 1) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width:g}"/>'


def _picture(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title, quote=True)}">'
    )
    ground = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    return "\n".join([head, ground, _text(12, 22, title, more='font-weight="600"'), *parts, "</svg>", ""])


def curves(title: str, across: str, up: str, series: Mapping[str, Curve]) -> str:
    """Return a plot of curves with both axes logarithmic: a straight line at 45 degrees is linear growth."""
    points = [point for curve in series.values() for point in curve]
    x_axis = _axis([x for x, _ in points], LEFT, WIDTH - RIGHT)
    y_axis = _axis([y for _, y in points], HEIGHT - BOTTOM, TOP)
    parts: list[str] = []
    for power in x_axis.decades():
        x = x_axis.place(10.0**power)
        parts += [_line(x, TOP, x, HEIGHT - BOTTOM), _text(x, HEIGHT - BOTTOM + 18, _label(power), "middle")]
    for power in y_axis.decades():
        y = y_axis.place(10.0**power)
        parts += [_line(LEFT, y, WIDTH - RIGHT, y), _text(LEFT - 8, y + 4, _label(power), "end")]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, across, "middle"))
    parts.append(_text(12, TOP - 8, up))
    for number, (name, curve) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        placed = [(x_axis.place(x), y_axis.place(y)) for x, y in curve]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
        key = TOP + 8 + number * 20
        parts += [_line(WIDTH - RIGHT + 14, key, WIDTH - RIGHT + 34, key, colour, 2)]
        parts.append(_text(WIDTH - RIGHT + 40, key + 4, name))
    return _picture(WIDTH, HEIGHT, title, parts)


def bars(title: str, unit: str, values: Mapping[str, float]) -> str:
    """Return horizontal bars on a logarithmic scale, each with its figure."""
    height = TOP + len(values) * (BAR + GAP) + 30
    low = floor(log10(min(values.values()) / 2))
    axis = Axis(low, max(ceil(log10(max(values.values()))), low + 1), NAMES, WIDTH - 80)
    parts: list[str] = []
    for power in axis.decades():
        x = axis.place(10.0**power)
        parts += [_line(x, TOP - 6, x, height - 26), _text(x, height - 10, _label(power), "middle")]
    for number, (name, value) in enumerate(values.items()):
        y = TOP + number * (BAR + GAP)
        length = max(axis.place(value) - NAMES, 2)
        colour = COLOURS[0] if name.startswith("Treadle") else "#9aa5b1"
        parts.append(f'<rect x="{NAMES}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>')
        parts.append(_text(NAMES - 8, y + 14, name, "end"))
        parts.append(_text(NAMES + length + 6, y + 14, f"{value:,.3g}" if value < 100 else f"{value:,.0f}"))
    return _picture(WIDTH, height, f"{title} ({unit}, logarithmic)", parts)
