"""Hooks for tests: small commands in the home, trusted through the API as a user does it."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path

from tests.harness.threads import Client, params_of
from treadle.protocol.base import JsonValue

LOG = "hook-events.jsonl"


class Hooks:
    """The hooks of one home: writes them, trusts them, and reads what they were given."""

    def __init__(self, home: Path, client: Client) -> None:
        self.home = home
        self.client = client
        self._files = 0

    @property
    def log(self) -> Path:
        """The file to which recording hooks append their input."""
        return self.home / LOG

    def records(self) -> str:
        """A command that keeps its input and allows everything."""
        path = shlex.quote(str(self.log))
        # One write: hooks of two events may run at the same time.
        return f"given=$(cat); printf '%s\\n' \"$given\" >> {path}"

    def says(
        self, output: JsonValue = None, *, text: str = "", error: str = "", code: int = 0
    ) -> str:
        """A command that keeps its input, prints JSON or text, and exits."""
        printed = text if output is None else json.dumps(output)
        out, err = self._file(printed), self._file(error)
        return f"{self.records()}; cat {out}; cat {err} >&2; exit {code}"

    def answers(self, answer: tuple[JsonValue, str, int]) -> str:
        """The same for an output, the text on stderr, and the exit code."""
        output, error, code = answer
        return self.says(output, error=error, code=code)

    def _file(self, text: str) -> str:
        self._files += 1
        path = self.home / f"hook-text-{self._files}"
        path.write_text(text, "utf-8")
        return shlex.quote(str(path))

    def write(self, **events: JsonValue) -> Path:
        """Write `hooks.json`: a command, a handler, a group or several groups for each event."""
        path = self.home / "hooks.json"
        groups = {event: _groups(value) for event, value in events.items()}
        path.write_text(json.dumps({"hooks": groups}), "utf-8")
        return path

    async def trust(self, folder: Path | None = None) -> list[JsonValue]:
        """Trust all hooks of a folder; return them."""
        cwd = str(folder or self.home)
        (entry,) = (await self.client.request("hooks/list", {"cwds": [cwd]}))["data"]
        state = {hook["key"]: {"trusted_hash": hook["currentHash"]} for hook in entry["hooks"]}
        edit = {"keyPath": "hooks.state", "value": state, "mergeStrategy": "upsert"}
        await self.client.request("config/batchWrite", {"edits": [edit]})
        hooks: list[JsonValue] = entry["hooks"]
        return hooks

    async def install(self, **events: JsonValue) -> None:
        """Write hooks of the user, and trust them."""
        self.write(**events)
        await self.trust()

    def given(self, event: str | None = None) -> list[JsonValue]:
        """What recording hooks were given, oldest first."""
        if not self.log.exists():
            return []
        lines = [json.loads(line) for line in self.log.read_text("utf-8").splitlines() if line]
        return [each for each in lines if event in (None, each["hook_event_name"])]

    def events(self) -> list[str]:
        """The names of the events of recording hooks, in order."""
        return [each["hook_event_name"] for each in self.given()]


def _groups(value: JsonValue) -> list[JsonValue]:
    if isinstance(value, list):
        return value
    if isinstance(value, dict) and "hooks" in value:
        return [value]
    return [{"hooks": [handler(value) if isinstance(value, str) else value]}]


def handler(command: str, **settings: JsonValue) -> JsonValue:
    """A command with settings."""
    return {"type": "command", "command": command, **settings}


def matched(matcher: str, *commands: str) -> JsonValue:
    """A group of commands with a matcher."""
    return {"matcher": matcher, "hooks": [handler(command) for command in commands]}


async def appears(path: Path) -> None:
    """Wait until a hook has written a file."""
    async with asyncio.timeout(20):
        while not path.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
            await asyncio.sleep(0.01)


def runs(messages: list[JsonValue], method: str = "hook/completed") -> list[JsonValue]:
    """The runs in the notifications of a turn."""
    return [params["run"] for params in params_of(messages, method)]


def outcomes(messages: list[JsonValue]) -> list[tuple[str, str, list[str]]]:
    """The event, the status and the messages of each run that ended."""
    return [
        (run["eventName"], run["status"], [f"{e['kind']}: {e['text']}" for e in run["entries"]])
        for run in runs(messages)
    ]


def warnings(messages: list[JsonValue]) -> list[str]:
    """The texts of warnings about hooks."""
    texts = [params["message"] for params in params_of(messages, "warning")]
    return [text for text in texts if "hook" in text]
