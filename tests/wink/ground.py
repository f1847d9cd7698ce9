"""Prompts, tools and an environment to evaluate them: a server of either kind and a model."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolResult,
)
from weakincentives.runtime import PromptExecuted, PromptRendered, Session, ToolInvoked
from weakincentives.runtime.session.rendered_tools import RenderedTools

from benchmarks.programs import folder_for_homes
from tests.harness.model_server import ModelServer, ReceivedRequest, Reply, model_server
from tests.harness.releases import program
from tests.harness.sandbox import SANDBOX
from tests.harness.threads import configure
from treadle.config.configuration import Configuration
from treadle.protocol.base import JsonValue
from treadle.server.server import Server
from treadle.transport.unix import UnixListener
from treadle.wink import (
    CodexAppServerAdapter,
    CodexAppServerClientConfig,
    CodexAppServerModelConfig,
)

T = TypeVar("T")
SECONDS = 30
MODEL = CodexAppServerModelConfig(model="mock-model")


@dataclass(frozen=True)
class Text:
    """Parameter and result of the tools."""

    text: str

    def render(self) -> str:
        """Return the text itself."""
        return self.text


Handler = Callable[[Text], ToolResult[Text]]


def tool(
    name: str = "upper", handler: Callable[[Text], ToolResult[Text]] | None = None
) -> JsonValue:
    """Return a tool whose handler is a plain function of its parameter."""
    act = handler or (lambda given: ToolResult.ok(Text(given.text.upper()), message="done"))

    def handle(params: Text, *, context: ToolContext) -> ToolResult[Text]:
        del context
        return act(params)

    return Tool[Text, Text](name=name, description="Changes a text.", handler=handle)


def prompt(
    text: str = "Do it.",
    *tools: JsonValue,
    kind: JsonValue = None,
    about: JsonValue = None,
    **more: JsonValue,
) -> JsonValue:
    """Return a prompt of one section, with an output type if one is given."""
    template = PromptTemplate if kind is None else PromptTemplate[kind]
    section = MarkdownSection(title="Task", key="task", template=text, tools=tools, **more)
    return Prompt(
        template(ns="tests", key="prompt", name="the_prompt", sections=(section,), **(about or {}))
    )


class Log:
    """A session and its events."""

    def __init__(self) -> None:
        self.session = Session()
        self.events: list[JsonValue] = []
        for kind in (PromptRendered, RenderedTools, ToolInvoked, PromptExecuted):
            self.session.dispatcher.subscribe(kind, self.events.append)

    def of(self, kind: type[T]) -> list[T]:
        """Return the events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def invocations(self) -> list[tuple[str, bool, str]]:
        """Return what was invoked: its name, whether it succeeded, its output."""
        invoked = self.of(ToolInvoked)
        return [(each.name, each.result.success, each.rendered_output) for each in invoked]


class Chosen(deque[Reply]):
    """Replies that depend on the request, for models that several agents use at once."""

    def __init__(self, model: ModelServer, choose: Callable[[ReceivedRequest], Reply]) -> None:
        super().__init__()
        self._model = model
        self._choose = choose

    def __bool__(self) -> bool:
        return True

    def popleft(self) -> Reply:
        """Return the reply to the latest request."""
        return self._choose(self._model.requests[-1])


class Ground:
    """A home, a working folder, a model, and adapters."""

    def __init__(self, kind: str, model: ModelServer, home: Path, cwd: Path) -> None:
        self.kind = kind
        self.model = model
        self.home = home
        self.cwd = cwd
        self.where: str | list[str] = self.command
        self.env = {"HOME": str(home), "CODEX_HOME": str(home), "TREADLE_HOME": str(home)}
        self.adapters: list[CodexAppServerAdapter] = []

    @property
    def command(self) -> list[str]:
        """Return the command that starts the server."""
        return [program(self.kind), "app-server"]

    def adapter(
        self,
        *,
        on_event: JsonValue = None,
        on_turn: JsonValue = None,
        model: CodexAppServerModelConfig = MODEL,
        **config: JsonValue,
    ) -> CodexAppServerAdapter:
        """Return an adapter for the server; it is closed at the end."""
        given = {"codex_bin": self.where, "cwd": str(self.cwd), "env": self.env, **config}
        adapter = CodexAppServerAdapter(
            model_config=model,
            client_config=CodexAppServerClientConfig(**given),
            on_event=on_event,
            on_turn=on_turn,
        )
        self.adapters.append(adapter)
        return adapter

    def recorded(self) -> tuple[list[str], Callable[[], list[int]]]:
        """Return a command that records its process ids, and a function that reads them."""
        script, starts = self.home / "recorded", self.home / "starts"
        script.write_text(f'#!/bin/sh\necho $$ >>"{starts}"\nexec "$@"\n', "utf-8")
        script.chmod(0o755)

        def read() -> list[int]:
            return [int(line) for line in starts.read_text("utf-8").splitlines()]

        return [str(script), *self.command], read


@asynccontextmanager
async def ground(kind: str, folder: Path) -> AsyncIterator[Ground]:
    """Set up an environment, and close it: adapters first, then the model, then the home.

    The kind `here` is our server in this process, behind a socket; it starts at once.
    """
    async with asyncio.timeout(SECONDS), model_server() as model, AsyncExitStack() as stack:
        place = TemporaryDirectory(dir=folder_for_homes(), prefix="w-")
        home = Path(stack.enter_context(place))
        configure(home, model)
        cwd = folder / "workspace"
        cwd.mkdir()
        made = Ground("treadle" if kind == "here" else kind, model, home, cwd)
        if kind == "here":
            made.where = await stack.enter_async_context(_here(home))
        try:
            yield made
        finally:
            for adapter in made.adapters:
                await asyncio.to_thread(adapter.close)


@asynccontextmanager
async def _here(home: Path) -> AsyncIterator[str]:
    with TemporaryDirectory(prefix="w-") as folder:
        path = Path(folder) / "s"
        server, listener = (
            Server(sandbox=SANDBOX, configuration=Configuration(home)),
            UnixListener(path),
        )
        await listener.start()
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.serve(listener))
            yield f"unix://{path}"
            serving.cancel()
        await server.close()
