"""The results of a run, judged by their targets and formatted as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from benchmarks.programs import TREADLE


class Unit(Enum):
    """The unit of a number; the value is its format."""

    MILLISECONDS = "{:.1f} ms"
    MICROSECONDS = "{:.1f} µs"
    MEBIBYTES = "{:.1f} MiB"
    COUNT = "{:,.0f}"
    PER_SECOND = "{:,.0f}/s"
    PERCENT = "{:.0f} %"
    TIMES = "{:.2f}x"


@dataclass(frozen=True, slots=True)
class Target:
    """The target for Treadle's number: factors of a reference's, an exact number or a maximum."""

    at_most: Mapping[str, float] = field(default_factory=dict)
    at_least: Mapping[str, float] = field(default_factory=dict)
    exactly: float | None = None
    up_to: float | None = None

    def is_met(self, values: Mapping[str, float]) -> bool:
        """Return whether the numbers meet the target, as far as there are any to compare."""
        own = values[TREADLE]
        return (
            all(own <= f * values[name] for name, f in self.at_most.items() if name in values)
            and all(own >= f * values[name] for name, f in self.at_least.items() if name in values)
            and self.exactly in (None, own)
            and (self.up_to is None or own <= self.up_to)
        )

    def __str__(self) -> str:
        parts = [f"<= {factor:g}x {name}" for name, factor in self.at_most.items()]
        parts += [f">= {factor:g}x {name}" for name, factor in self.at_least.items()]
        if self.exactly is not None:
            parts.append(f"{self.exactly:,g}")
        if self.up_to is not None:
            parts.append(f"<= {self.up_to:g}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Row:
    """One number per program, or for Treadle alone."""

    measure: str
    unit: Unit
    values: Mapping[str, float]
    target: Target | None = None

    @property
    def is_missed(self) -> bool:
        """Whether there is a target and it is not met."""
        return self.target is not None and not self.target.is_met(self.values)


def table(rows: Sequence[Row], references: Sequence[str]) -> str:
    """Format all rows as a Markdown table."""
    titles = ["measure", TREADLE, *references, *(f"/ {name}" for name in references)]
    cells = [[*titles, "target", ""], *(_cells(row, references) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = [_line(line, widths) for line in cells]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([lines[0], _line(rule, widths), *lines[1:]])


def _cells(row: Row, references: Sequence[str]) -> list[str]:
    names = [TREADLE, *references]
    numbers = [
        row.unit.value.format(row.values[name]) if name in row.values else "" for name in names
    ]
    own = row.values[TREADLE]
    ratios = [_ratio(own, row.values.get(name)) for name in references]
    verdict = "" if row.target is None else "over" if row.is_missed else "ok"
    return [row.measure, *numbers, *ratios, str(row.target or ""), verdict]


def _ratio(own: float, other: float | None) -> str:
    if not other:
        return ""
    ratio = own / other
    # Small ratios have limits such as 0.35, for which two digits are too coarse.
    return f"{ratio:.3f}x" if ratio < 1 else f"{ratio:.2f}x"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(width) if column == 0 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"| {' | '.join([first, *others])} |"
