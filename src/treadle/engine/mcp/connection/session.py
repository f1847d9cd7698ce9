"""One session with an MCP server, from the handshake to the end of the connection.

This module imports the MCP SDK, so it is imported only when a server is configured.
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
from treadle.engine.mcp.connection.failures import redact_failure
from treadle.engine.mcp.connection.limits import MALFORMED, MAX_QUESTIONS, is_own_error
from treadle.engine.mcp.connection.notes import Notes
from treadle.engine.mcp.connection.transport import (
    NO_MESSAGE,
    NOT_READING,
    OutgoingStream,
    WatchedStream,
    describe,
    open_streams,
    summarize,
)
from treadle.engine.mcp.questions import CallTime
from treadle.engine.mcp.server import (
    CLOSE_SECONDS,
    McpError,
    OnProgress,
    Raw,
    Send,
    ServerContext,
    list_all,
)
from treadle.protocol.base import JsonValue
from treadle.support.text.secrets import secrets_of_environment

if TYPE_CHECKING:
    import httpx2

TOO_MANY_QUESTIONS: Final = f"more than {MAX_QUESTIONS} questions in one call"
SECONDS_BETWEEN_LISTS: Final = 1.0
# Sent when the server reports a change, so elicitations meanwhile do not belong to it.
_LIST_TOOLS: Final = "tools/list"
CLIENT: Final = types.Implementation(name="treadle-mcp-client", title="Treadle", version="1")

logger = logging.getLogger(__name__)


class _Answer(RootModel[dict[str, JsonValue]]):
    """A result as the server sent it, so that it is forwarded unchanged."""


class _Call(types.Request[dict[str, JsonValue], str]):
    """A request with parameters that are not validated."""

    method: str
    params: dict[str, JsonValue]


class McpSession:
    """A session with a server: its handshake, its requests and its elicitations."""

    def __init__(self, name: str, config: ServerConfig, context: ServerContext) -> None:
        self.name = name
        self.notes = Notes()
        self.about: Raw = {}
        self.tools: dict[str, Raw] = {}
        self.is_connecting = False
        self.is_alive = False
        self.took_too_long = False
        self.had_login = False
        self._config = config
        self._context = context
        # Errors quote stderr, to which a server may print its environment.
        env = config.environment(context.environ) if config.url is None else {}
        self.notes.secrets.add(secrets_of_environment(env))
        self._client: ClientSession | None = None
        self._ended = asyncio.Event()
        self._tools_changed = asyncio.Event()
        # The running calls, whose time is paused during an elicitation.
        self._calls: set[CallTime] = set()
        # Elicitations since the last call that arrived while no call was running.
        self._stray_questions = 0

    async def live(
        self,
        on_ready: Callable[[McpSession], None],
        on_failed: Callable[[McpSession, str], None],
        closing: asyncio.Event,
    ) -> None:
        """Connect, report it, and stay connected until `closing` or the end of the server."""
        limit = asyncio.timeout(None)
        try:
            async with limit, AsyncExitStack() as stack:
                try:
                    await self._begin(stack)
                    on_ready(self)
                    await self._stay(on_ready, closing)
                except Exception as error:  # noqa: BLE001 - any error ends the session
                    # Before the clean-up, which may take long.
                    on_failed(self, describe(error, self._config, self.notes))
                finally:
                    self.is_alive = False
                    if self._config.url is not None:
                        # A server that does not respond must not block the end of the session.
                        limit.reschedule(asyncio.get_running_loop().time() + CLOSE_SECONDS)
        except Exception as error:  # noqa: BLE001 - the SDK wraps connection errors
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
        """End this session."""
        self.is_alive = False
        self._ended.set()

    async def ask(self, method: str, params: Raw, on_progress: OnProgress | None = None) -> Raw:
        """Send a request.

        Raises:
            McpError: it was refused, timed out, or the connection was lost.
        """
        try:
            answer = await self._ask(method, params, on_progress)
            return redact_failure(answer, self.notes.secrets)
        except McpError as error:
            # Without the cause, which a traceback would print.
            reason = self.notes.secrets.redact(str(error))
            raise McpError(reason, code=error.code, is_lost=error.is_lost) from None

    async def _ask(self, method: str, params: Raw, on_progress: OnProgress | None) -> Raw:
        call = CallTime(self._config.tool_seconds, may_ask=method != _LIST_TOOLS)
        if not self._calls:
            self.notes.set_malformed(is_malformed=False)
        if method != _LIST_TOOLS:
            self._stray_questions = 0
        try:
            async with call.limit:
                self._calls.add(call)
                return await self._send(method, params, on_progress)
        except TimeoutError as error:
            raise McpError(self._timeout_text(method, call)) from error
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED:
                self.end()
                raise McpError(self._lost_text(), is_lost=True) from error
            if is_own_error(error.message):
                raise McpError(f"the answer to {method} {error.message}") from error
            # Over HTTP, this is the SDK's error for a malformed answer, with a long list of types.
            if error.code == types.PARSE_ERROR and self._config.url is not None:
                raise McpError(f"the answer to {method} {MALFORMED}") from error
            raise McpError(error.message, code=error.code) from error
        except (ValidationError, ValueError) as error:
            reason = f"the answer to {method} {MALFORMED}: {summarize(error)}"
            raise McpError(reason) from error
        finally:
            self._calls.discard(call)

    def _timeout_text(self, method: str, call: CallTime) -> str:
        if call.has_too_many_questions:
            return f"the MCP server asked more than {MAX_QUESTIONS} questions during {method}"
        seconds = self._config.tool_seconds
        limit = f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"
        text = f"timed out awaiting {method} after {limit}"
        return f"{text}; meanwhile {NO_MESSAGE}" if self.notes.is_malformed else text

    def _lost_text(self) -> str:
        text = f"the MCP server '{self.name}' ended before it answered"
        if self.notes.is_not_reading:
            return f"{text}: {NOT_READING}"
        if self.notes.is_malformed:
            return f"{text}: {NO_MESSAGE}"
        return f"{text}: {self.notes.stderr_tail}" if self.notes.stderr_tail else text

    async def _send(self, method: str, params: Raw, on_progress: OnProgress | None) -> Raw:
        if self._client is None:
            raise MCPError(types.CONNECTION_CLOSED, "not connected")

        async def report(progress: float, total: float | None, message: str | None) -> None:
            if on_progress is not None:
                of = "" if total is None else f"/{total:g}"
                on_progress(message or f"{progress:g}{of}")

        present = {key: value for key, value in params.items() if value is not None}
        answer = await self._client.send_request(
            _Call(method=method, params=present),
            _Answer,
            progress_callback=None if on_progress is None else report,
        )
        return answer.root

    async def _connect(self, stack: AsyncExitStack) -> None:
        reading, writing = await stack.enter_async_context(
            open_streams(
                self._config,
                sandbox=self._context.sandbox,
                cwd=self._context.cwd,
                environ=self._context.environ,
                auth=self._auth(),
                notes=self.notes,
            )
        )
        outgoing = OutgoingStream(writing)
        client = self._client = await stack.enter_async_context(
            ClientSession(
                WatchedStream(reading, outgoing, self.notes, self.end),
                outgoing,
                elicitation_callback=self._elicit,
                message_handler=self._on_message,
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
        if self._context.apps is not None:
            from treadle.engine.mcp.connection.account import AccountAuth

            self.had_login = True
            return AccountAuth(self._context.apps.login)
        from treadle.engine.mcp.oauth import stored_login

        login = stored_login(self.name, url, self._context.tokens)
        self.had_login = login is not None
        return login

    async def _stay(self, on_ready: Callable[[McpSession], None], closing: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            ours = [
                tasks.create_task(closing.wait()),
                tasks.create_task(self._ended.wait()),
                tasks.create_task(self._follow_tools(on_ready)),
            ]
            # A server that does not respond must not block the end of the session.
            await asyncio.wait(ours, return_when=asyncio.FIRST_COMPLETED)
            for task in ours:
                task.cancel()
        if not closing.is_set():
            raise McpError(f"MCP server '{self.name}' ended", is_lost=True)

    async def _follow_tools(self, on_ready: Callable[[McpSession], None]) -> None:
        """List the tools again when the server reports a change, and report one that is real."""
        while True:
            await self._tools_changed.wait()
            self._tools_changed.clear()
            previous = self.tools
            try:
                await self._list_tools(self.ask)
            except McpError as error:
                # Keep the previous list.
                logger.info("mcp list failed", extra={"server": self.name, "reason": str(error)})
            if self.tools != previous:
                on_ready(self)
            # Each list is sent to clients and to the model: changes meanwhile wait for the next.
            await asyncio.sleep(SECONDS_BETWEEN_LISTS)

    async def _list_tools(self, send: Send) -> None:
        if "tools" in (self.about.get("capabilities") or {}):
            tools = await list_all(send, _LIST_TOOLS, "tools")
            self.tools = {str(tool["name"]): tool for tool in tools}

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._tools_changed.set()

    async def _elicit(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - the SDK passes it by name
        params: types.ElicitRequestParams,
    ) -> types.ElicitResult | types.ErrorData:
        """Forward an elicitation; the time of the server's calls is paused until its answer."""
        if not self._may_ask():
            return types.ErrorData(code=types.INVALID_REQUEST, message=TOO_MANY_QUESTIONS)
        # The protocol does not say which call an elicitation belongs to, so pause all of them.
        waiting = list(self._calls)
        for call in waiting:
            call.pause()
        try:
            question = params.model_dump(mode="json", by_alias=True, exclude_unset=True)
            answer = await self._context.elicit(question)
            return types.ElicitResult.model_validate(answer)
        finally:
            for call in waiting:
                call.resume()

    def _may_ask(self) -> bool:
        """Count an elicitation; calls with too many of them fail."""
        calls = [call for call in self._calls if call.may_ask]
        if not calls:
            self._stray_questions += 1
            return self._stray_questions <= MAX_QUESTIONS
        allowed = [call.count_question() for call in calls]
        if not all(allowed):
            # The server may send more after the call has failed: refuse all until the next call.
            self._stray_questions = MAX_QUESTIONS
        return all(allowed)
