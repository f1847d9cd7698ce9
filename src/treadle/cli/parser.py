"""The command line, spelled as upstream's so that either program fits the other's place."""

from __future__ import annotations

import argparse

import treadle


def parser() -> argparse.ArgumentParser:
    treadle_ = argparse.ArgumentParser(
        prog="treadle", description="A Codex app-server for any model.", allow_abbrev=False
    )
    treadle_.add_argument("--version", action="version", version=f"treadle {treadle.__version__}")
    _add_config(treadle_)
    commands = treadle_.add_subparsers(dest="command", metavar="COMMAND")
    _add_app_server(commands)
    # Has a parser of its own: see exec_arguments.py.
    commands.add_parser("exec", help="do one piece of work, as `codex exec` does")
    commands.add_parser("demo", help="watch a server and a client talk, on every transport")
    doctor = commands.add_parser("doctor", help="find out what works here", allow_abbrev=False)
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")
    _add_run(commands)
    return treadle_


def _add_config(parser: argparse.ArgumentParser, *, is_nested: bool = False) -> None:
    # A flag given before the subcommand and again after it adds up, as upstream's does.
    suffix = "_nested" if is_nested else ""
    group = parser.add_argument_group("configuration")
    group.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest=f"config{suffix}",
        help="override a value of config.toml; the value is TOML, or else a plain string",
    )
    for name in ("enable", "disable"):
        group.add_argument(
            f"--{name}",
            action="append",
            default=[],
            metavar="FEATURE",
            dest=f"{name}{suffix}",
            help=f"{name} a feature, as -c features.FEATURE=... does",
        )


def _add_app_server(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    server = commands.add_parser("app-server", help="run the app-server", allow_abbrev=False)
    _add_config(server, is_nested=True)
    server.add_argument("--strict-config", action="store_true", help="refuse unknown settings")
    where = server.add_mutually_exclusive_group()
    where.add_argument(
        "--listen",
        metavar="URL",
        default="stdio://",
        help="stdio:// (default), ws://IP:PORT, unix://, unix://PATH, or off",
    )
    where.add_argument("--stdio", action="store_true", help="the same as --listen stdio://")
    server.add_argument("--analytics-default-enabled", action="store_true", help=argparse.SUPPRESS)
    server.add_argument("--code-mode-host", metavar="URL", help=argparse.SUPPRESS)
    _add_auth(server)
    _add_limits(server)
    tools = server.add_subparsers(dest="subcommand", metavar="COMMAND")
    for name, what in (
        ("generate-ts", "TypeScript types"),
        ("generate-json-schema", "JSON Schema"),
    ):
        tool = tools.add_parser(name, help=f"write the protocol as {what}", allow_abbrev=False)
        tool.add_argument("-o", "--out", required=True, metavar="DIR", help="where to write")
        tool.add_argument(
            "--experimental", action="store_true", help="include what is experimental"
        )
        tool.add_argument("-p", "--prettier", metavar="PATH", help=argparse.SUPPRESS)


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = commands.add_parser("run", help="have a piece of work done", allow_abbrev=False)
    run.add_argument("prompt", metavar="PROMPT", help="what is to be done; - reads it from stdin")
    run.add_argument(
        "--unattended", action="store_true", required=True, help="nobody is there to watch"
    )
    run.add_argument("--json", action="store_true", help="print every event as a line of JSON")
    where = run.add_argument_group("where")
    where.add_argument("--cwd", default=".", metavar="DIR", help="the folder to work in (.)")
    where.add_argument(
        "--workspace-root", metavar="DIR", help="refuse a folder that is not below this one"
    )
    server = where.add_mutually_exclusive_group()
    server.add_argument(
        "--command",
        metavar="COMMAND",
        dest="server_command",
        help="start this app-server, such as 'codex app-server', instead of our own",
    )
    server.add_argument("--url", metavar="URL", help="use one that runs: ws://... or unix://...")
    where.add_argument("--token-env", metavar="NAME", help="variable with the token for the URL")
    where.add_argument("--resume", metavar="THREAD", help="go on with a thread")
    where.add_argument("--state", metavar="FILE", help="file by which a later run goes on")
    where.add_argument("--title", metavar="TEXT", help="name of the thread")
    _add_rules(run)


def _add_rules(run: argparse.ArgumentParser) -> None:
    rules = run.add_argument_group("rules")
    rules.add_argument("--model", metavar="MODEL", help="the configured one if not given")
    rules.add_argument("--approval-policy", metavar="POLICY", default="never", help="never")
    rules.add_argument("--sandbox", metavar="MODE", default="workspace-write")
    rules.add_argument(
        "--questions",
        choices=["answer", "block", "ask"],
        default="answer",
        help="what becomes of questions to the user: a standing answer, the end, the terminal",
    )
    rules.add_argument("--until", metavar="COMMAND", help="take turns until this succeeds")
    for name, kind, default, what in (
        ("max-turns", int, None, "turns in all (1; 20 with --until)"),
        ("max-tokens", int, None, "tokens in all"),
        ("max-failures", int, 3, "failures in all that are tried again (3)"),
        ("retry-seconds", float, 10.0, "wait after the first failure; each doubles it (10)"),
        ("stall-seconds", float, 300.0, "silence after which a turn is given up; 0: never (300)"),
        ("turn-seconds", float, 0.0, "time for one turn; 0: any (0)"),
        ("read-seconds", float, 30.0, "time for an answer of the server (30)"),
    ):
        rules.add_argument(f"--{name}", type=kind, default=default, metavar="N", help=what)


def _add_auth(server: argparse.ArgumentParser) -> None:
    auth = server.add_argument_group("authentication of WebSocket clients")
    auth.add_argument("--ws-auth", choices=["capability-token", "signed-bearer-token"])
    auth.add_argument("--ws-token-file", metavar="PATH", help="file that holds the token")
    auth.add_argument("--ws-token-sha256", metavar="HEX", help="SHA-256 digest of the token")
    auth.add_argument("--ws-shared-secret-file", metavar="PATH", help="key of signed tokens")
    auth.add_argument("--ws-issuer", metavar="ISSUER", help="required issuer of signed tokens")
    auth.add_argument("--ws-audience", metavar="AUDIENCE", help="required audience")
    auth.add_argument(
        "--ws-max-clock-skew-seconds",
        type=int,
        metavar="SECONDS",
        help="how far clocks may differ (30)",
    )


def _add_limits(server: argparse.ArgumentParser) -> None:
    limits = server.add_argument_group("limits of WebSocket and unix socket listeners")
    limits.add_argument(
        "--max-connections",
        type=_positive,
        metavar="N",
        help="connections at once; others get 503 (most of the open files limit)",
    )
    limits.add_argument(
        "--max-strangers",
        type=_positive,
        metavar="N",
        help="connections at once that have not sent `initialize`; the oldest makes room (512)",
    )
    limits.add_argument(
        "--initialize-timeout-seconds",
        type=_positive,
        metavar="SECONDS",
        help="time until a connection must have sent `initialize` (60)",
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text!r}")
    return number
