"""One session with an MCP server, from the handshake to the end of its connection.

This module imports the MCP SDK, and so is imported only when a server is configured.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import mcp_types as types
from mcp.client.session import ClientRequestContext, ClientSession, IncomingMessage
from mcp.shared.exceptions import MCPError
from pydantic import RootModel, ValidationError

from treadle.engine.mcp.config import ServerConfig
from treadle.engine.mcp.connection.limits import GARBLED, MAX_QUESTIONS, is_ours
from treadle.engine.mcp.connection.notes import Notes
from treadle.engine.mcp.connection.transport import (
    NO_MESSAGE,
    Watched,
    briefly,
    describe,
    open_streams,
)
from treadle.engine.mcp.questions import CallTime
from treadle.engine.mcp.server import (
    CLOSE_SECONDS,
    Ask,
    McpError,
    OnProgress,
    Raw,
    Setting,
    list_all,
)
from treadle.protocol.base import JsonValue
from treadle.support.text.secrets import secrets_of_environment

if TYPE_CHECKING:
    import httpx2

TOO_MANY_QUESTIONS: Final = f"more than {MAX_QUESTIONS} questions in one call"
# Made whenever the server says so: its questions meanwhile belong to no call of the user.
_LIST_TOOLS: Final = "tools/list"
CLIENT: Final = types.Implementation(name="treadle-mcp-client", title="Treadle", version="1")

logger = logging.getLogger(__name__)


class _Answer(RootModel[dict[str, JsonValue]]):
    """A result as the server wrote it: what is passed on must not be reworded."""


class _Call(types.Request[dict[str, JsonValue], str]):
    """A request as we write it."""

    method: str
    params: dict[str, JsonValue]


class McpSession:
    """A connection to a server on which the handshake is done."""

    def __init__(self, name: str, config: ServerConfig, setting: Setting) -> None:
        self.name = name
        self.notes = Notes()
        self.about: Raw = {}
        self.tools: dict[str, Raw] = {}
        self.is_connecting = False
        self.is_alive = False
        self.took_too_long = False
        self.had_login = False
        self._config = config
        self._setting = setting
        # A server that prints its environment to its stderr is quoted in errors.
        given = config.environment(setting.environ) if config.url is None else {}
        self.notes.secrets.add(secrets_of_environment(given))
        self._client: ClientSession | None = None
        self._over = asyncio.Event()
        self._has_news = asyncio.Event()
        # The calls under way; their time stands still while the user answers a question.
        self._calls: set[CallTime] = set()
        # Questions since the last call that came while no call was under way.
        self._stray_questions = 0

    async def live(
        self,
        on_ready: Callable[[McpSession], None],
        on_failed: Callable[[McpSession, str], None],
        closing: asyncio.Event,
    ) -> None:
        """Connect, say so, and stay connected until it is time to go or the server has gone."""
        limit = asyncio.timeout(None)
        try:
            async with limit, AsyncExitStack() as stack:
                try:
                    await self._begin(stack)
                    on_ready(self)
                    await self._stay(on_ready, closing)
                except Exception as error:  # noqa: BLE001 - whatever it is, the session is over
                    # Told before the clean-up, which may take its time.
                    on_failed(self, describe(error, self._config, self.notes))
                finally:
                    self.is_alive = False
                    if self._config.url is not None:
                        # A server that does not answer any more must not keep us here.
                        limit.reschedule(asyncio.get_running_loop().time() + CLOSE_SECONDS)
        except Exception as error:  # noqa: BLE001 - the SDK wraps what broke its connection
            if not closing.is_set():
                on_failed(self, describe(error, self._config, self.notes))

    async def _begin(self, stack: AsyncExitStack) -> None:
        self.is_connecting = True
        try:
            async with asyncio.timeout(self._config.startup_seconds):
                await self._connect(stack)
        except TimeoutError:
            self.took_too_long = True
            raise
        finally:
            self.is_connecting = False
        self.is_alive = True

    def end(self) -> None:
        """Give up this session."""
        self.is_alive = False
        self._over.set()

    async def ask(self, method: str, params: Raw, on_progress: OnProgress | None = None) -> Raw:
        """Make a request.

        Raises:
            McpError: it was refused, took too long, or the connection broke.
        """
        try:
            return await self._ask(method, params, on_progress)
        except McpError as error:
            # Without the cause, which a traceback would print.
            words = self.notes.secrets.redact(str(error))
            raise McpError(words, code=error.code, is_lost=error.is_lost) from None

    async def _ask(self, method: str, params: Raw, on_progress: OnProgress | None) -> Raw:
        call = CallTime(self._config.tool_seconds, may_ask=method != _LIST_TOOLS)
        if not self._calls:
            self.notes.is_garbled = False
        if method != _LIST_TOOLS:
            self._stray_questions = 0
        try:
            async with call.limit:
                self._calls.add(call)
                return await self._send(method, params, on_progress)
        except TimeoutError as error:
            raise McpError(self._overdue(method, call)) from error
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED:
                self.end()
                raise McpError(self._lost(), is_lost=True) from error
            if is_ours(error.message):
                raise McpError(f"the answer to {method} {error.message}") from error
            # Over HTTP the SDK calls it so, with all that it had expected instead.
            if error.code == types.PARSE_ERROR and self._config.url is not None:
                raise McpError(f"the answer to {method} {GARBLED}") from error
            raise McpError(error.message, code=error.code) from error
        except (ValidationError, ValueError) as error:
            words = f"the answer to {method} {GARBLED}: {briefly(error)}"
            raise McpError(words) from error
        finally:
            self._calls.discard(call)

    def _overdue(self, method: str, call: CallTime) -> str:
        if call.has_too_many_questions:
            return f"the MCP server asked more than {MAX_QUESTIONS} questions during {method}"
        seconds = self._config.tool_seconds
        limit = f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"
        words = f"timed out awaiting {method} after {limit}"
        return f"{words}; meanwhile {NO_MESSAGE}" if self.notes.is_garbled else words

    def _lost(self) -> str:
        words = f"the MCP server '{self.name}' ended before it answered"
        if self.notes.is_garbled:
            return f"{words}: {NO_MESSAGE}"
        return f"{words}: {self.notes.last_words}" if self.notes.last_words else words

    async def _send(self, method: str, params: Raw, on_progress: OnProgress | None) -> Raw:
        if self._client is None:
            raise MCPError(types.CONNECTION_CLOSED, "not connected")

        async def report(progress: float, total: float | None, message: str | None) -> None:
            if on_progress is not None:
                of = "" if total is None else f"/{total:g}"
                on_progress(message or f"{progress:g}{of}")

        given = {key: value for key, value in params.items() if value is not None}
        answer = await self._client.send_request(
            _Call(method=method, params=given),
            _Answer,
            progress_callback=None if on_progress is None else report,
        )
        return answer.root

    async def _connect(self, stack: AsyncExitStack) -> None:
        reading, writing = await stack.enter_async_context(
            open_streams(
                self._config,
                cwd=self._setting.cwd,
                environ=self._setting.environ,
                auth=self._auth(),
                notes=self.notes,
            )
        )
        client = self._client = await stack.enter_async_context(
            ClientSession(
                Watched(reading, self.notes, self.end),
                writing,
                elicitation_callback=self._elicit,
                message_handler=self._hear,
                client_info=CLIENT,
            )
        )
        about = await client.initialize()
        self.about = about.model_dump(mode="json", by_alias=True, exclude_unset=True)
        await self._list_tools(self._send)

    def _auth(self) -> httpx2.Auth | None:
        url = self._config.url
        if url is None or self._config.has_own_login:
            return None
        from treadle.engine.mcp.oauth import stored_login

        login = stored_login(self.name, url, self._setting.tokens)
        self.had_login = login is not None
        return login

    async def _stay(self, on_ready: Callable[[McpSession], None], closing: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            ours = [
                tasks.create_task(closing.wait()),
                tasks.create_task(self._over.wait()),
                tasks.create_task(self._follow_tools(on_ready)),
            ]
            # A server that does not answer any more must not keep us from going.
            await asyncio.wait(ours, return_when=asyncio.FIRST_COMPLETED)
            for task in ours:
                task.cancel()
        if not closing.is_set():
            raise McpError(f"MCP server '{self.name}' ended", is_lost=True)

    async def _follow_tools(self, on_ready: Callable[[McpSession], None]) -> None:
        """Look anew whenever the server says that its tools have changed."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            try:
                await self._list_tools(self.ask)
            except McpError as error:
                # What it had before is as good a guess as any.
                logger.info("mcp list failed", extra={"server": self.name, "reason": str(error)})
                continue
            on_ready(self)

    async def _list_tools(self, ask: Ask) -> None:
        if "tools" in (self.about.get("capabilities") or {}):
            tools = await list_all(ask, _LIST_TOOLS, "tools")
            self.tools = {str(tool["name"]): tool for tool in tools}

    async def _hear(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._has_news.set()

    async def _elicit(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - the SDK gives it by name
        params: types.ElicitRequestParams,
    ) -> types.ElicitResult | types.ErrorData:
        """Pass a question on; the time of the server's calls stands still until it is answered."""
        if not self._may_ask():
            return types.ErrorData(code=types.INVALID_REQUEST, message=TOO_MANY_QUESTIONS)
        # The protocol does not say which call asks, so that each of them may be waiting.
        waiting = list(self._calls)
        for call in waiting:
            call.pause()
        try:
            asked = params.model_dump(mode="json", by_alias=True, exclude_unset=True)
            answer = await self._setting.elicit(asked)
            return types.ElicitResult.model_validate(answer)
        finally:
            for call in waiting:
                call.resume()

    def _may_ask(self) -> bool:
        """Count a question; the calls that it is one too many for fail."""
        asking = [call for call in self._calls if call.may_ask]
        if not asking:
            self._stray_questions += 1
            return self._stray_questions <= MAX_QUESTIONS
        allowed = [call.count_question() for call in asking]
        if not all(allowed):
            # The flood may go on after the call has failed: until the next one, nothing is asked.
            self._stray_questions = MAX_QUESTIONS
        return all(allowed)
