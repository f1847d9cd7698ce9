"""The programs and sizes of a run, and the reduction of samples to one number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from benchmarks.programs import TREADLE, Program
from benchmarks.report import Row

Values: TypeAlias = Mapping[str, float]
Reduce: TypeAlias = Callable[[Iterable[float]], float]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    starts: int = 20
    memories: int = 5
    pipelined: int = 4_000
    loops: int = 3
    loop_requests: int = 20_000
    loop_seconds: float = 1.0
    roundtrips: int = 2_000
    warm_up: int = 1_000
    rounds: int = 3
    threads_started: int = 20
    turns: int = 60
    deltas: int = 20_000
    threads_at_once: int = 100
    deltas_at_once: int = 100
    threads_listed: int = 300
    lists: int = 5
    turns_read: int = 300
    reads: int = 5
    few_threads: int = 1_000
    many_threads: int = 100_000
    pages: int = 30
    imports: int = 8
    client_turns: int = 300
    commands: int = 30
    commands_at_once: int = 50
    lines_of_output: int = 2_000
    lines_patched: int = 10_000
    files: int = 100_000
    few_turns: int = 1_000
    many_turns: int = 10_000


@dataclass(frozen=True, slots=True)
class Bench:
    """The compared programs, their homes and the sizes of the measurements."""

    programs: Sequence[Program]
    homes: Path
    sizes: Sizes

    @property
    def treadle(self) -> Program:
        """Treadle itself, which is always measured."""
        return next(program for program in self.programs if program.name == TREADLE)

    def turns(self, rounds: int) -> Iterator[Program]:
        """Yield every program once per round: A, B, C, A, B, C."""
        for _ in range(rounds):
            yield from self.programs

    def samples(self) -> dict[str, list[float]]:
        """Return an empty list of samples per program."""
        return {program.name: [] for program in self.programs}


Measure: TypeAlias = Callable[[Bench], list[Row]]


def per_program(reduce: Reduce, samples: Mapping[str, list[float]]) -> Values:
    """Reduce the samples to one number per program."""
    return {name: reduce(numbers) for name, numbers in samples.items()}
