"""The command line, compatible with upstream's so that either program can replace the other."""

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
    # Has its own parser: see exec/arguments.py.
    commands.add_parser("exec", help="run one task, as `codex exec` does")
    commands.add_parser("demo", help="show a server and a client on every transport")
    doctor = commands.add_parser(
        "doctor", help="check what works on this machine", allow_abbrev=False
    )
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")
    _add_run(commands)
    return treadle_


def _add_config(parser: argparse.ArgumentParser, *, is_nested: bool = False) -> None:
    # Values before and after the subcommand are combined, as with upstream.
    suffix = "_nested" if is_nested else ""
    group = parser.add_argument_group("configuration")
    group.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest=f"config{suffix}",
        help="override a value of config.toml; the value is TOML or a plain string",
    )
    for name in ("enable", "disable"):
        group.add_argument(
            f"--{name}",
            action="append",
            default=[],
            metavar="FEATURE",
            dest=f"{name}{suffix}",
            help=f"{name} a feature, like -c features.FEATURE=...",
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
    for name, form in (
        ("generate-ts", "TypeScript types"),
        ("generate-json-schema", "JSON Schema"),
    ):
        tool = tools.add_parser(name, help=f"write the protocol as {form}", allow_abbrev=False)
        tool.add_argument("-o", "--out", required=True, metavar="DIR", help="output folder")
        tool.add_argument("--experimental", action="store_true", help="include experimental types")
        tool.add_argument("-p", "--prettier", metavar="PATH", help=argparse.SUPPRESS)


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = commands.add_parser("run", help="run a task without supervision", allow_abbrev=False)
    run.add_argument("prompt", metavar="PROMPT", help="the task; - reads it from stdin")
    run.add_argument(
        "--unattended",
        action="store_true",
        required=True,
        help="run without supervision (required)",
    )
    run.add_argument("--json", action="store_true", help="print every event as a line of JSON")
    where = run.add_argument_group("where")
    where.add_argument("--cwd", default=".", metavar="DIR", help="folder to work in (.)")
    where.add_argument(
        "--workspace-root", metavar="DIR", help="refuse a --cwd that is not below this folder"
    )
    server = where.add_mutually_exclusive_group()
    server.add_argument(
        "--command",
        metavar="COMMAND",
        dest="server_command",
        help="start this app-server, such as 'codex app-server', instead of Treadle's",
    )
    server.add_argument(
        "--url", metavar="URL", help="use a running app-server: ws://... or unix://..."
    )
    where.add_argument("--token-env", metavar="NAME", help="variable with the token for the URL")
    where.add_argument("--resume", metavar="THREAD", help="resume a thread")
    where.add_argument("--state", metavar="FILE", help="file from which a later run continues")
    where.add_argument("--title", metavar="TEXT", help="name of the thread")
    _add_rules(run)


def _add_rules(run: argparse.ArgumentParser) -> None:
    rules = run.add_argument_group("rules")
    rules.add_argument(
        "--model", metavar="MODEL", help="model to use (default: the configured one)"
    )
    rules.add_argument(
        "--approval-policy", metavar="POLICY", default="never", help="approval policy (never)"
    )
    rules.add_argument("--sandbox", metavar="MODE", default="workspace-write")
    rules.add_argument(
        "--questions",
        choices=["answer", "block", "ask"],
        default="answer",
        help="how to handle questions to the user: canned answer, fail the turn, "
        "or prompt in the terminal",
    )
    rules.add_argument("--until", metavar="COMMAND", help="run turns until this command succeeds")
    for name, kind, default, help_text in (
        ("max-turns", int, None, "maximum number of turns (1; 20 with --until)"),
        ("max-tokens", int, None, "maximum number of tokens"),
        ("max-failures", int, 3, "maximum number of retries (3)"),
        (
            "retry-seconds",
            float,
            10.0,
            "wait after the first failure, doubled after each further one (10)",
        ),
        ("stall-seconds", float, 300.0, "idle timeout of a turn; 0: none (300)"),
        ("turn-seconds", float, 0.0, "time limit of a turn; 0: none (0)"),
        ("read-seconds", float, 30.0, "timeout of each request to the server (30)"),
    ):
        rules.add_argument(f"--{name}", type=kind, default=default, metavar="N", help=help_text)


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
        help="maximum clock difference (30)",
    )


def _add_limits(server: argparse.ArgumentParser) -> None:
    limits = server.add_argument_group("limits of WebSocket and unix socket listeners")
    limits.add_argument(
        "--max-connections",
        type=_positive,
        metavar="N",
        help="maximum number of connections; further ones get 503 (most of the open files limit)",
    )
    limits.add_argument(
        "--max-strangers",
        type=_positive,
        metavar="N",
        help="maximum number of connections before `initialize`; the oldest is closed (512)",
    )
    limits.add_argument(
        "--initialize-timeout-seconds",
        type=_positive,
        metavar="SECONDS",
        help="time limit for `initialize` on a new connection (60)",
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text!r}")
    return number
