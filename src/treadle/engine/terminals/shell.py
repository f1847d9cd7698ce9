"""The shell that runs commands, and the environment of commands."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from treadle.engine.tools.output import DEFAULT_TOKENS
from treadle.protocol.base import JsonValue
from treadle.shell.scripts import program_name, script_of
from treadle.support.files.programs import find_on_path

if TYPE_CHECKING:
    from treadle.sandbox.limits import CommandLimits

SHELLS: Final = ("bash", "zsh", "sh")
# A program of this name in another folder may not be the shell.
_FOLDERS: Final = ("/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")

PLAIN_OUTPUT: Final = {
    "NO_COLOR": "1",
    "LANG": "C.UTF-8",
    "LC_CTYPE": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "COLORTERM": "",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GH_PAGER": "cat",
    "CODEX_CI": "1",
}
"""Makes programs print without colours and pagers."""

# Variables that name start-up files, or that mark a remote login, for which bash reads ~/.bashrc.
_STARTUP: Final = frozenset("BASH_ENV ENV ZDOTDIR SSH_CLIENT SSH2_CLIENT".split())
_NO_FILES: Final = {"bash": ("--noprofile", "--norc"), "zsh": ("-f",)}
_LOGIN: Final = frozenset("-l --login -lc -cl".split())

_CORE: Final = frozenset("HOME LOGNAME PATH SHELL USER USERNAME TMPDIR TEMP TMP".split())
_SECRET: Final = ("*KEY*", "*SECRET*", "*TOKEN*")


class ShellSettings(Struct, frozen=True, kw_only=True):
    """The configuration of commands."""

    allows_login: bool = True
    # The table `shell_environment_policy`.
    environment: Mapping[str, JsonValue] = field(default_factory=dict)
    max_poll_ms: int = 300_000
    # The limit for requests of the model, and the default.
    max_output_tokens: int | None = None
    # Resource limits of one command; `None` for the defaults.
    limits: CommandLimits | None = None

    def command_limits(self) -> CommandLimits:
        """Return the limits of a new command."""
        if self.limits is not None:
            return self.limits
        from treadle.sandbox.limits import default_limits

        return default_limits()

    def budget(self, requested: float | None = None) -> int:
        """How many tokens of output the model gets."""
        limit = self.max_output_tokens or DEFAULT_TOKENS
        return limit if requested is None else min(limit, max(0, int(requested)))


def user_shell() -> str:
    """The user's login shell if it is supported, otherwise bash."""
    try:
        own = pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:
        own = ""  # a user without an entry, as in many containers
    if Path(own).name in SHELLS and os.access(own, os.X_OK):
        return own
    return find_shell("bash")


def find_shell(name: str) -> str:
    """The shell with this name or path, `/bin/sh` if there is none."""
    folder, base = os.path.split(name)
    if base not in SHELLS:
        return "/bin/sh"
    if folder in _FOLDERS and os.access(name, os.X_OK):
        return name
    # System folders come first: a command may have put a program into a folder of `PATH`.
    usual = os.pathsep.join(_FOLDERS)
    path = os.environ.get("PATH")
    return find_on_path(base, usual) or find_on_path(base, path) or "/bin/sh"


def shell_argv(script: str, *, shell: str | None = None, is_login: bool = True) -> tuple[str, ...]:
    """The arguments of a shell that runs a script."""
    program = user_shell() if shell is None else find_shell(shell)
    return (program, "-lc" if is_login else "-c", script)


def without_startup_files(
    argv: tuple[str, ...], env: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Change a command and its environment so that its shell reads no start-up files.

    A command that does not run a script in a shell keeps its arguments.
    """
    kept = {name: value for name, value in env.items() if name not in _STARTUP}
    script = script_of(argv)
    if script is None:
        return argv, kept
    return (argv[0], *_NO_FILES.get(program_name(argv[0]), ()), "-c", script), kept


def reads_startup_files(argv: Sequence[str]) -> bool:
    """Whether a command runs a script in a shell that reads the user's start-up files first."""
    if script_of(argv) is None:
        return False
    return program_name(argv[0]) == "zsh" or any(flag in _LOGIN for flag in argv[1:-1])


def environment(
    policy: Mapping[str, JsonValue],
    thread_id: str,
    *,
    call_id: str | None = None,
    has_network: bool = True,
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of a command: allowed variables of the server, and those that Codex sets."""
    names = allowed(policy, os.environ if environ is None else environ)
    names |= {"CODEX_THREAD_ID": thread_id, "CODEX_SESSION_ID": thread_id}
    if call_id is not None:
        names |= {**PLAIN_OUTPUT, "CODEX_TOOL_CALL_ID": call_id}
    if not has_network:
        names["CODEX_SANDBOX_NETWORK_DISABLED"] = "1"
    return names


def allowed(policy: Mapping[str, JsonValue], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a `shell_environment_policy` lets through, and those that it sets."""
    names = dict(environ)
    if policy.get("inherit") == "none":
        names = {}
    elif policy.get("inherit") == "core":
        names = {name: value for name, value in names.items() if name in _CORE}
    # The reference passes secrets on unless this option is false.
    if policy.get("ignore_default_excludes", True) is False:
        names = _without(names, _SECRET)
    names = _without(names, _patterns(policy, "exclude"))
    values = policy.get("set")
    if isinstance(values, dict):
        names |= {str(name): str(value) for name, value in values.items()}
    only = _patterns(policy, "include_only")
    if only:
        names = {name: value for name, value in names.items() if _matches(name, only)}
    return names


def _patterns(policy: Mapping[str, JsonValue], key: str) -> list[str]:
    value = policy.get(key)
    return [str(pattern) for pattern in value] if isinstance(value, list) else []


def _without(names: dict[str, str], patterns: Iterable[str]) -> dict[str, str]:
    kept = tuple(patterns)
    return {name: value for name, value in names.items() if not _matches(name, kept)}


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name.upper(), pattern.upper()) for pattern in patterns)
