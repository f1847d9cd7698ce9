"""Dispatches the command line of `treadle` to one subcommand, and imports only that."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from treadle.cli.options import ServerOptions
from treadle.server.fast_handshake import FastHandshake


def run(arguments: Sequence[str], *, early: FastHandshake | None = None) -> int:
    """Run one command and return its exit code."""
    if early is not None:
        # The fast path takes only arguments that need no parser, which is slow to import.
        return _serve(ServerOptions(config=early.assignments), early)
    from treadle.cli.exec.arguments import exec_arguments
    from treadle.cli.parser import parser

    if (exec_args := exec_arguments(arguments)) is not None:
        from treadle.cli.exec.command import run as exec_

        _enable_gc()
        return exec_(exec_args)
    args = parser().parse_args(arguments)
    if args.command == "app-server" and args.subcommand is not None:
        from treadle.cli.schema import generate

        return generate(args.subcommand, args.out, experimental=args.experimental)
    if args.command == "app-server":
        return _serve(ServerOptions.parsed(args), None)
    if args.command == "demo":
        from treadle.cli.demo import demo

        _enable_gc()
        return demo()
    if args.command == "doctor":
        from treadle.cli.doctor import doctor

        return doctor(args.config, as_json=args.json)
    if args.command == "run":
        from treadle.cli.run import run as run_

        _enable_gc()
        return run_(args)
    parser().print_help()
    return 2


def _serve(options: ServerOptions, early: FastHandshake | None) -> int:
    from treadle.cli.app_server import StartError, start

    _enable_gc()
    try:
        return start(options, early)
    except StartError as error:
        from treadle.support.text.terminal import prose

        print(f"Error: {prose(str(error))}", file=sys.stderr)
        return 1


def _enable_gc() -> None:
    """Turn on garbage collection, which `__main__` turned off; imported modules are not scanned.

    Commands that end soon after their imports do without it.
    """
    gc.freeze()
    gc.enable()
