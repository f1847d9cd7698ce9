"""Runs the measures and prints a table of the results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bench import Bench, Sizes
from benchmarks.measures import MEASURES
from benchmarks.programs import (
    TREADLE,
    Program,
    Unavailable,
    find_newer,
    find_older,
    find_treadle,
)
from benchmarks.report import Row, table
from benchmarks.servers import ServerFailed, homes

QUICK = Sizes(
    starts=5,
    memories=2,
    loops=1,
    loop_requests=5_000,
    roundtrips=500,
    rounds=1,
    threads_started=10,
    turns=15,
    deltas=5_000,
    threads_at_once=30,
    threads_listed=100,
    lists=3,
    turns_read=30,
    reads=1,
    many_threads=3_000,
    imports=3,
    client_turns=100,
    commands=10,
    few_turns=200,
    many_turns=800,
    files=20_000,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; with `--check`, also judge the results."""
    options = _parser().parse_args(arguments)
    try:
        programs = [find_treadle(), *_chosen(options)]
    except Unavailable as reason:
        print(f"nothing to measure: {reason}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    try:
        with homes() as folder:
            bench = Bench(programs, folder, QUICK if options.quick else Sizes())
            for name in options.names or MEASURES:
                print(f"measuring: {name}", file=sys.stderr, flush=True)
                rows += MEASURES[name](bench)
    except ServerFailed as reason:
        print(f"could not measure: {reason}", file=sys.stderr)
        return 2
    others = [program.name for program in programs[1:]]
    others += sorted({name for row in rows for name in row.values} - {TREADLE, *others})
    print(table(rows, others))
    return 1 if options.check and any(row.is_missed for row in rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    # Not `choices`, which rejects an empty list of names.
    parser.add_argument("names", nargs="*", type=_measure, help=", ".join(MEASURES))
    parser.add_argument("--quick", action="store_true", help="fewer rounds, rougher numbers")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument(
        "--beside", metavar="PATH", type=Path, help="measure another build of treadle as well"
    )
    parser.add_argument(
        "--no-references", action="store_true", help="leave out the releases of the reference"
    )
    return parser


def _measure(name: str) -> str:
    if name not in MEASURES:
        raise argparse.ArgumentTypeError(
            f"unknown measure {name!r}: expected one of {', '.join(MEASURES)}"
        )
    return name


def _chosen(options: argparse.Namespace) -> list[Program]:
    """Return the programs to compare with.

    Raises:
        Unavailable: the other build of treadle does not exist.
    """
    others: list[Program] = []
    if options.beside is not None:
        if not options.beside.exists():
            raise Unavailable(f"there is no file {str(options.beside)!r}")
        others.append(Program("beside", options.beside.absolute()))
    return others if options.no_references else [*others, *_references()]


def _references() -> list[Program]:
    references: list[Program] = []
    for find in (find_newer, find_older):
        try:
            references.append(find())
        except Unavailable as reason:
            print(f"skipping a reference: {reason}", file=sys.stderr)
    return references


if __name__ == "__main__":
    sys.exit(main())
