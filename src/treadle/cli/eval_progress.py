"""Progress of a live eval run: one redrawn line on a terminal, occasional lines elsewhere."""

from typing import TextIO

from treadle.evals.live.spending_ledger import SpendingLedger
from treadle.evals.results.sample_rows import SampleRow

_WIDTH = 24
_LINES = 10
"""How many lines are written where nothing can be drawn again."""


class SampleProgress:
    """Counts samples and shows them."""

    def __init__(self, total: int, out: TextIO) -> None:
        self._total = total
        self._out = out
        self._counts = {"pass": 0, "fail": 0, "broken": 0}
        self._is_drawn = out.isatty()

    def update(self, row: SampleRow, ledger: SpendingLedger | None = None) -> None:
        """Count a sample; with a ledger, show what it has used."""
        self._counts[row.outcome] += 1
        done = sum(self._counts.values())
        if self._is_drawn:
            self._out.write(f"\r{self._line(done, ledger)}\x1b[K")
            self._out.flush()
        elif done == self._total or done % max(1, self._total // _LINES) == 0:
            self._out.write(f"{self._line(done, ledger)}\n")

    def close(self) -> None:
        """End the line."""
        if self._is_drawn:
            self._out.write("\n")

    def _line(self, done: int, ledger: SpendingLedger | None) -> str:
        filled = _WIDTH * done // max(1, self._total)
        counts = ", ".join(f"{count} {name}" for name, count in self._counts.items() if count)
        bar = f"[{'#' * filled}{'.' * (_WIDTH - filled)}]"
        line = f"{bar} {done}/{self._total}  {counts}"
        if ledger is None:
            return line
        return f"{line}  {ledger.requests} requests{f', {ledger.spent_usd:.4f} USD' if ledger.spent_usd else ''}"
