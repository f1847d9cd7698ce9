"""Runs one command of the command line."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from treadle.cli.options import ServerOptions
from treadle.server.fast_handshake import FastHandshake


def run(arguments: Sequence[str], *, early: FastHandshake | None = None) -> int:
    """Run one command and give its exit code."""
    if early is not None:
        # The arguments were found plain before: no need for a parser, which is not small.
        return _serve(ServerOptions(config=early.assignments), early)
    from treadle.cli.exec.arguments import exec_arguments
    from treadle.cli.parser import parser

    if (given_to_exec := exec_arguments(arguments)) is not None:
        from treadle.cli.exec.command import run as exec_

        _keep_imports()
        return exec_(given_to_exec)
    given = parser().parse_args(arguments)
    if given.command == "app-server" and given.subcommand is not None:
        from treadle.cli.schema import generate

        return generate(given.subcommand, given.out, experimental=given.experimental)
    if given.command == "app-server":
        return _serve(ServerOptions.parsed(given), None)
    if given.command == "demo":
        from treadle.cli.demo import demo

        _keep_imports()
        return demo()
    if given.command == "doctor":
        from treadle.cli.doctor import doctor

        return doctor(given.config, as_json=given.json)
    if given.command == "run":
        from treadle.cli.run import run as run_

        _keep_imports()
        return run_(given)
    parser().print_help()
    return 2


def _serve(options: ServerOptions, early: FastHandshake | None) -> int:
    from treadle.cli.app_server import StartError, start

    _keep_imports()
    try:
        return start(options, early)
    except StartError as error:
        from treadle.support.text.terminal import prose

        print(f"Error: {prose(str(error))}", file=sys.stderr)
        return 1


def _keep_imports() -> None:
    """Collect garbage from now on, but do not look through what was imported each time."""
    gc.freeze()
    gc.enable()
