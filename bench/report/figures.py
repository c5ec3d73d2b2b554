"""Medians and spread, and the tables made of them: as text for the terminal, as Markdown for the document."""

from collections.abc import Sequence
from math import log
from statistics import median, quantiles
from typing import NamedTuple

MICRO, MILLI = 1e6, 1e3


class Spread(NamedTuple):
    """The middle of what was seen in all rounds, and the quartiles around it."""

    middle: float
    low: float
    high: float

    def times(self, factor: float) -> "Spread":
        """Return the same in another unit."""
        return Spread(self.middle * factor, self.low * factor, self.high * factor)

    def __format__(self, spec: str) -> str:
        return f"{self.middle:{spec}} [{self.low:{spec}}–{self.high:{spec}}]"


def spread(values: Sequence[float]) -> Spread:
    """Return median and quartiles of at least one value."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return the ratio round by round: what hits both in one round does not count."""
    return spread([own / other for own, other in zip(ours, theirs, strict=True) if other > 0] or [0.0])


class Table(NamedTuple):
    """Rows of words under a head, the first column to the left, the others to the right."""

    title: str
    head: list[str]
    rows: list[list[str]]

    def text(self) -> str:
        """Return the table for a terminal."""
        lines = [self.head, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.head))]
        shown = [self._line(line, widths) for line in lines]
        return "\n".join([self.title, *shown])

    def markdown(self) -> str:
        """Return the table for a document."""
        rule = "|---|" + "---:|" * (len(self.head) - 1)
        rows = ["| " + " | ".join(line) + " |" for line in self.rows]
        return "\n".join([f"{self.title}:", "", "| " + " | ".join(self.head) + " |", rule, *rows])

    def _line(self, line: list[str], widths: list[int]) -> str:
        first, *others = [
            word.rjust(width) if column else word.ljust(width)
            for column, (word, width) in enumerate(zip(line, widths, strict=True))
        ]
        return "  ".join(["  " + first, *others]).rstrip()


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """Return the power that a curve of cost over size grows with in its last third, above its cost at the start.

    1 is linear; below it is better. What is there already at the smallest size is taken off: a fixed cost would make
    every curve look better than it is.
    """
    (x0, y0), *others = points
    grown = [(x - x0, y - y0) for x, y in others if y > y0]
    if len(grown) < 2:
        return 0.0
    (xa, ya), (xb, yb) = grown[-2], grown[-1]
    return log(yb / ya) / log(xb / xa)


def middle(values: Sequence[float]) -> float:
    """Return the median."""
    return median(values)
