"""The server: any number of clients on any number of transports, one set of threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from treadle.config.configuration import Configuration
from treadle.config.file import ConfigError
from treadle.connection.connection import Connection
from treadle.connection.router import Router
from treadle.engine.services import Models
from treadle.engine.threads import Threads
from treadle.jsonrpc import envelope
from treadle.jsonrpc.errors import InternalError, RpcError
from treadle.jsonrpc.params import decode_params
from treadle.protocol.client_requests import CLIENT_REQUESTS, INITIALIZE
from treadle.protocol.config import ProjectConfigLayerSource
from treadle.protocol.error import ConfigWarningNotification
from treadle.protocol.legacy import LEGACY_REQUESTS
from treadle.protocol.source import SessionSource
from treadle.server import handlers
from treadle.server.errors import translate
from treadle.server.handshake import home_folder
from treadle.server.session import ClientSession, guard
from treadle.server.sources.mcp import ConfiguredMcp
from treadle.server.sources.models import ConfiguredModels
from treadle.store.store import Store
from treadle.support.clock import NowMs, now_ms
from treadle.support.concurrency.workers import Workers
from treadle.support.files.descriptors import is_shortage
from treadle.support.incidents import Incident
from treadle.transport.base import Listener, Transport

if TYPE_CHECKING:
    from treadle.engine.thread import LoadedThread
    from treadle.protocol.skill import SkillMetadata
    from treadle.server.files.watch import Watcher
    from treadle.server.sources.skills_watch import SkillsWatch

MAX_SETTINGS_WORKERS: Final = 4

logger = logging.getLogger(__name__)


class Server:
    """Answers clients; what belongs to no client lives here."""

    def __init__(
        self,
        *,
        configuration: Configuration | None = None,
        models: Models | None = None,
        clock: NowMs = now_ms,
        source: SessionSource = "vscode",
    ) -> None:
        self._clock = clock
        # What threads that begin here say of where they come from.
        self.source = source
        self.configuration = configuration or Configuration(Path(home_folder()))
        self.credentials = self.configuration.credentials
        home = self.configuration.home
        models = models or ConfiguredModels(self.configuration)
        self.threads = Threads(Store(home, clock=clock), models, home=home, clock=clock)
        if isinstance(models, ConfiguredModels):
            models.in_use = self.threads.models_in_use
        self.threads.mcp = ConfiguredMcp(self.configuration)
        self.threads.rule_folders = self._rule_folders
        self.threads.settings_folders = (str(self.configuration.system),)
        self.threads.trusted_folders = self.configuration.trusted_folders
        self.threads.opened_roots = lambda: self.configuration.opened_roots
        self.threads.skills = self._skills
        self._router: Router[ClientSession] = Router(
            {**CLIENT_REQUESTS, **LEGACY_REQUESTS}, guard=guard, translate=self._translate
        )
        handlers.register(self._router)
        self.sessions: set[ClientSession] = set()
        self.threads.on_spawn = self._introduce
        self._shortage = Incident(logger, "requests fail: descriptors or memory are used up")
        self.is_finishing = False
        self._on_idle: Callable[[], object] | None = None
        # Threads that write the configuration and the login, which wait for other programs.
        self.settings_workers = Workers("settings", MAX_SETTINGS_WORKERS)

    @cached_property
    def watcher(self) -> Watcher:
        """Notices changes of files, for all clients."""
        from treadle.server.files.watch import Watcher

        return Watcher()

    @cached_property
    def skills_watch(self) -> SkillsWatch:
        """Notices changes of skills, and tells all clients."""
        from treadle.protocol.notifications import SKILLS_CHANGED
        from treadle.protocol.skill import SkillsChangedNotification
        from treadle.server.sources.skills_watch import SkillsWatch

        def tell() -> None:
            self.threads.broadcast(SKILLS_CHANGED, SkillsChangedNotification())

        return SkillsWatch(self.watcher, self.threads.tasks, tell)

    def warnings(self) -> Sequence[ConfigWarningNotification]:
        """What every client should know: that the configuration or the sandbox is not all right."""
        found: list[ConfigWarningNotification] = []
        try:
            sandbox = self.configuration.effective().sandbox
        except ConfigError:
            sandbox, found = None, list(self.configuration.lenient().warnings)
        # Both cost an import that most servers can do without at their start.
        if sandbox is not None:
            from treadle.sandbox.backends.selection import wish

            wish(landlock_protects=sandbox.landlock_protects)
        if self.threads.expects_commands:
            from treadle.engine.terminals.sandbox_status import sandbox_warning

            found += filter(None, [sandbox_warning()])
        return found

    def _translate(self, error: Exception) -> RpcError | None:
        """Answer an error; when descriptors are short, free those that nobody needs now."""
        if is_shortage(error):
            self._shortage.happened(str(error))
            self.threads.release_idle()
            if not isinstance(error, OSError):
                return InternalError(str(error) or "out of memory", kind="io")
        return translate(error)

    def _introduce(self, parent: LoadedThread, child: LoadedThread) -> None:
        """Let those who hear an agent meet one that works for it."""
        for session in self.sessions:
            session.meet(parent, child)

    def _rule_folders(self, cwd: str) -> list[Path]:
        """Where the projects that the user trusts keep rules about commands, for this folder."""
        try:
            layers = self.configuration.effective(cwd).layers
        except ConfigError:
            return []  # nothing that cannot be read can be trusted
        return [
            Path(layer.source.dot_codex_folder) / "rules"
            for layer in layers
            if isinstance(layer.source, ProjectConfigLayerSource) and layer.disabled_reason is None
        ]

    def _skills(self, cwd: str) -> Sequence[SkillMetadata]:
        """The skills that a folder sees."""
        from treadle.server.sources.skills import configured_skills

        return configured_skills(self.configuration, cwd).found

    def unbuilt_methods(self) -> list[str]:
        """The methods of the protocol that this server knows and cannot do yet."""
        return list(self._router.unhandled())

    async def serve(self, listener: Listener) -> None:
        """Answer every client, until cancelled; commands of this server are no clients of it."""
        from treadle.sandbox.peers.identity import PeerCheck  # of no use to a server on pipes

        await listener.serve(self.attach, admit=PeerCheck().refusal)

    def finish(self) -> None:
        """Take no more requests, end the turns, tell it, and hang up on everybody."""
        self.is_finishing = True
        self.threads.interrupt_turns()
        for session in self.sessions:
            if session.connection is not None:
                session.connection.finish(session.drain)

    async def close(self) -> None:
        """Finish, and let go of everything; turns that ran are stored as interrupted."""
        self.finish()
        await self.threads.close()

    def when_idle(self, action: Callable[[], object]) -> None:
        """Call this when the last client is gone."""
        self._on_idle = action

    async def attach(self, transport: Transport, *, answered: bytes | None = None) -> None:
        """Converse with one client until it hangs up.

        `answered` is an `initialize` that the client has had its answer to.
        """
        if self.is_finishing:
            await transport.close()
            return
        session = ClientSession(self)
        if answered is not None:
            _replay_handshake(session, answered)
        connection = Connection(
            transport,
            self._router,
            session,
            stamp=self._clock,
            ids=self.threads.request_ids,
            on_start=session.listen if answered is not None else None,
        )
        session.connection = connection
        self.sessions.add(session)
        if answered is not None:
            logger.info("client connected", extra={"peer": transport.peer})
        try:
            await connection.run()
        finally:
            session.leave()
            self.sessions.discard(session)
            if not self.sessions and self._on_idle is not None:
                self._on_idle()
            # A stranger gets no line of the log.
            if session.client is not None:
                logger.info("client gone", extra={"peer": transport.peer})


def _replay_handshake(session: ClientSession, line: bytes) -> None:
    call = envelope.decode(line)
    if not isinstance(call, envelope.RequestMessage):
        message = "only a request can have been answered"
        raise msgspec.ValidationError(message)
    session.initialize(decode_params(INITIALIZE, call.params))
