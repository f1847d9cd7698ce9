"""Runs one conversation many times, each time with a fault at another point; a program.

Each run is a child that is forked before anything is imported late, so every run meets the same
points: each write to a journal, each sync, each look at its state, each import. Prints a line of
JSON for each run.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from traceback import walk_stack
from types import ModuleType

from tests.harness.lines import in_memory
from tests.harness.sandbox import SANDBOX
from tests.harness.threads import Client, Refused, text_input
from treadle.config.configuration import Configuration
from treadle.engine.settings import RunSettings
from treadle.model.base import Model, ModelRequest
from treadle.model.retry import RetryPolicy
from treadle.model.scripted.model import ScriptedModel, calls
from treadle.model.scripted.script import Response
from treadle.protocol.base import JsonValue
from treadle.server.server import Server
from treadle.support.ids import uuid7

SECONDS = 20
ERRORS = ("ENOSPC", "EIO", "EDQUOT", "EROFS", "EFBIG", "EBADF")
ASK = "item/commandExecution/requestApproval"
POLICY: JsonValue = {"approvalPolicy": "untrusted", "sandbox": "danger-full-access"}


class Injector:
    """Counts the points of one kind, and raises at the one with a number, or from there on."""

    def __init__(self, number: int, *, is_lasting: bool) -> None:
        self._number = number
        self._is_lasting = is_lasting
        self._is_armed = False
        self.points: list[str] = []
        self.last = ""

    def arm(self, *, is_armed: bool) -> None:
        """Begin or end to raise."""
        self._is_armed = is_armed

    def reached(self, where: str) -> None:
        """Pass a point, or fail there."""
        if not self._is_armed:
            return
        self.points.append(where)
        count = len(self.points)
        is_due = count >= self._number if self._is_lasting else count == self._number
        if self._number and is_due:
            self.last = self.last or where
            raise self._error()

    def _error(self) -> Exception:
        if self._number % 7 == 0:
            return MemoryError()
        number = getattr(errno, ERRORS[self._number % len(ERRORS)])
        return OSError(number, os.strerror(number))


class Writes(Injector):
    """The writes to journals."""

    def install(self) -> None:
        """Put itself before the call to the system."""
        write = os.write

        def writes(descriptor: int, data: bytes) -> int:
            if "/sessions/" in _name(descriptor):
                self.reached("write")
            return write(descriptor, data)

        setattr(os, "write", writes)  # noqa: B010  the checker does not take it otherwise


class Syncs(Injector):
    """The syncs of files and of folders."""

    def install(self) -> None:
        """Put itself before the calls to the system."""
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._before(getattr(os, name)))

    def _before(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def syncs(descriptor: int) -> None:
            self.reached(f"{sync.__name__} {_name(descriptor)}")
            sync(descriptor)

        return syncs


class States(Injector):
    """The looks at the state of a journal, and its closing."""

    def install(self) -> None:
        """Put itself before the calls to the system."""
        fstat, close = os.fstat, os.close

        def states(descriptor: int) -> os.stat_result:
            if "/sessions/" in _name(descriptor):
                self.reached("fstat")
            return fstat(descriptor)

        def closes(descriptor: int) -> None:
            name = _name(descriptor)
            close(descriptor)  # the kernel closes it also where it reports an error
            if "/sessions/" in name:
                self.reached("close")

        setattr(os, "fstat", states)  # noqa: B010  the checker does not take it otherwise
        setattr(os, "close", closes)  # noqa: B010

    def _error(self) -> Exception:
        return OSError(errno.EIO, os.strerror(errno.EIO))


class Imports(Injector):
    """The modules that a function imports while the server works.

    What these modules import themselves is left out: such a failure is theirs too.
    """

    def install(self) -> None:
        """Be asked first where a module is."""
        sys.meta_path.insert(0, self)

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002  a finder's signature
        target: ModuleType | None = None,  # noqa: ARG002  a finder's signature
    ) -> ModuleSpec | None:
        """Find nothing, or fail."""
        if name.startswith("treadle") and not _is_nested():
            self.reached(name)
        return None

    def _error(self) -> Exception:
        if os.getpid() % 2:
            return ImportError("injected")
        return OSError(errno.EMFILE, os.strerror(errno.EMFILE))


KINDS: dict[str, type[Writes | Syncs | States | Imports]] = {
    "writes": Writes,
    "syncs": Syncs,
    "states": States,
    "imports": Imports,
}


def _is_nested() -> bool:
    """Whether a module is being imported by another one that is being imported."""
    names = [frame.f_code.co_name for frame, _line in walk_stack(None)]
    return names.count("_find_and_load") > 1


def _name(descriptor: int) -> str:
    with suppress(OSError):
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    return ""


class OneModel:
    """Wants one command, and is done."""

    def __init__(self) -> None:
        self._model = ScriptedModel(self._play)

    def _play(self, request: ModelRequest) -> Response:
        if any(str(item.get("type")).endswith("_output") for item in request.input):
            return "done"
        return calls("exec_command", {"cmd": "touch made; echo made", "login": False})

    def model(self, settings: RunSettings) -> tuple[Model, RetryPolicy]:  # noqa: ARG002  the contract's
        """Return the model."""
        return self._model, RetryPolicy(request_max_retries=0, stream_max_retries=0)

    async def close(self) -> None:
        """Do nothing."""


async def converse(home: Path, injector: Injector) -> list[str]:
    """Hold the conversation; return what is wrong with it."""
    server = Server(sandbox=SANDBOX, configuration=Configuration(home), models=OneModel())
    try:
        async with asyncio.timeout(SECONDS), in_memory(server) as peer:
            client = Client(peer)
            await client.initialize()
            injector.arm(is_armed=True)
            thread_id, turn_id, outcome = await _first_turn(client, home.parent)
            injector.arm(is_armed=False)
            return await _afterwards(client, home, thread_id, turn_id, outcome)
    except TimeoutError:
        return ["a request or a turn has no end"]
    finally:
        injector.arm(is_armed=False)
        await server.close()


async def _first_turn(client: Client, cwd: Path) -> tuple[str | None, str | None, str]:
    thread_id = None
    try:
        thread_id = await client.start(cwd=str(cwd), **POLICY)
        turn_id = await client.start_turn(thread_id, "first")
    except Refused as refused:
        return thread_id, None, f"refused: {refused.message}"
    while True:
        message = client.unread.pop(0) if client.unread else await client.peer.receive()
        if message.get("method") == ASK:
            await client.peer.send({"id": message["id"], "result": {"decision": "accept"}})
        if message.get("method") == "turn/completed" and message["params"]["turn"]["id"] == turn_id:
            return thread_id, turn_id, str(message["params"]["turn"]["status"])


async def _afterwards(
    client: Client, home: Path, thread_id: str | None, turn_id: str | None, outcome: str
) -> list[str]:
    """Use the thread once the fault is gone."""
    faults: list[str] = []
    if thread_id is None:
        thread_id = await client.start(cwd=str(home.parent), **POLICY)
    if turn_id is not None:
        refusal = await client.refusal("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
        if refusal.kind != "noActiveTurn":
            faults.append(f"interrupt: {refusal.message}")
    given = {"threadId": thread_id, "input": [text_input("second")], "approvalPolicy": "never"}
    turn = (await client.request("turn/start", given))["turn"]["id"]
    last = (await client.end_of(turn))[-1]["params"]["turn"]
    if last["status"] != "completed":
        faults.append(f"second turn: {last}")
    turns = (await client.read(thread_id))["turns"]
    known = [each["status"] for each in turns if each["id"] == turn_id]
    if turn_id is not None and known != [outcome]:
        faults.append(f"first turn ended as {outcome} and is stored as {known}")
    return [*faults, *_flaws(home)]


def _flaws(home: Path) -> list[str]:
    """What is wrong with the journals: a line that is not whole, a number that comes twice."""
    faults: list[str] = []
    for path in home.glob("sessions/*/*/*/*.jsonl"):
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        marks = [line.get("treadle") or {} for line in lines]
        numbers = [mark["seq"] for mark in marks if mark.get("record") == "event"]
        if numbers != sorted(set(numbers)):
            faults.append(f"numbers: {numbers}")
    return faults


def run(folder: Path, kind: str, number: int, *, is_lasting: bool) -> JsonValue:
    """Hold the conversation in a child with a fault at one point."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        with open(reader, "rb") as pipe:  # noqa: PTH123  it is open already
            text = pipe.read()
        os.waitpid(child, 0)
        return json.loads(text or b'{"faults": ["the process died"], "points": []}')
    try:
        home = folder / f"{kind}-{uuid7()}" / "home"
        home.mkdir(parents=True)
        (home / "config.toml").write_text('model = "scripted"\n')
        injector = KINDS[kind](number, is_lasting=is_lasting)
        injector.install()
        faults = asyncio.run(converse(home, injector))
        result = {"faults": faults, "where": injector.last, "points": injector.points}
        os.write(writer, json.dumps(result).encode())
    except BaseException as error:  # noqa: BLE001  the parent reports whatever it was
        result = {"faults": [repr(error)], "where": "", "points": []}
        os.write(writer, json.dumps(result).encode())
    finally:
        os._exit(0)


def main() -> None:
    """Find the points of a kind in a clean run, then fail at each, or at one in some."""
    folder, kind, every = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    # What an earlier point has imported need not be imported again by each later run.
    late = run(folder, "imports", 0, is_lasting=False)["points"]
    if kind != "imports":
        for name in late:
            import_module(name)
    points = run(folder / "clean", kind, 0, is_lasting=False)["points"]
    for number, point in enumerate(points, 1):
        modes = (False, True) if kind != "imports" else (False,)
        for is_lasting in modes if number % every == 0 else ():
            result = run(folder, kind, 1 if kind == "imports" else number, is_lasting=is_lasting)
            del result["points"]
            sys.stdout.write(json.dumps({"number": number, "lasting": is_lasting, **result}) + "\n")
            sys.stdout.flush()
        if kind == "imports":
            import_module(point)


if __name__ == "__main__":
    main()
