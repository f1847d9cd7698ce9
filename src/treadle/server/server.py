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
from treadle.engine.services import EngineServices, EngineSources, Models
from treadle.engine.settings import RunSettings
from treadle.engine.threads import Threads
from treadle.jsonrpc import envelope
from treadle.jsonrpc.errors import InternalError, RpcError
from treadle.jsonrpc.params import decode_params
from treadle.model.base import Model
from treadle.protocol.client_requests import CLIENT_REQUESTS, INITIALIZE
from treadle.protocol.config import ProjectConfigLayerSource
from treadle.protocol.error import ConfigWarningNotification
from treadle.protocol.legacy import LEGACY_REQUESTS
from treadle.protocol.source import SessionSource
from treadle.sandbox.sandbox import Sandbox
from treadle.server import handlers
from treadle.server.encoded_events import EncodedEvents
from treadle.server.errors import translate
from treadle.server.mcp_logins import McpLogins
from treadle.server.session import ClientSession, guard
from treadle.server.sources.hooks import ConfiguredHooks
from treadle.server.sources.mcp import ConfiguredMcp
from treadle.server.sources.models import ConfiguredModels
from treadle.server.thread_creators import current_creator
from treadle.store.store import Store
from treadle.support.clock import NowMs, now_ms
from treadle.support.concurrency.workers import Workers
from treadle.support.files.descriptors import is_shortage
from treadle.support.home import home_folder
from treadle.support.incidents import Incident
from treadle.transport.base import Listener, Transport

if TYPE_CHECKING:
    from treadle.engine.commands.rule_file import RuleFile
    from treadle.engine.thread import LoadedThread
    from treadle.model.provider import Bearer
    from treadle.protocol.account import AccountLoginCompletedNotification
    from treadle.server.account_logins import AccountLogins
    from treadle.server.apps.apps import Apps
    from treadle.server.files.watch import Watcher
    from treadle.server.plugins.active import ActivePlugins
    from treadle.server.plugins.plugins import Plugins
    from treadle.server.realtime.conversations import RealtimeConversations
    from treadle.server.sources.skills import ConfiguredSkills
    from treadle.server.sources.skills_watch import SkillsWatch

MAX_SETTINGS_WORKERS: Final = 4
MAX_CLIENT_WORKERS: Final = 64
"""The threads for the file requests of all clients."""
MAX_SEARCH_WORKERS: Final = 32
"""The threads for the file searches of all clients, which compute for long."""

logger = logging.getLogger(__name__)


class Server:
    """Answers clients and owns everything that they share."""

    def __init__(
        self,
        *,
        configuration: Configuration | None = None,
        models: Models | None = None,
        clock: NowMs = now_ms,
        source: SessionSource = "vscode",
        sandbox: Sandbox | None = None,
    ) -> None:
        self._clock = clock
        # The session source recorded for threads that start here.
        self.source = source
        self.configuration = configuration or Configuration(Path(home_folder()))
        self.credentials = self.configuration.credentials
        home = self.configuration.home
        # From the last configuration that could be read.
        self._landlock_protects = False
        self._owns_sandbox = sandbox is None
        self.sandbox = sandbox or Sandbox(
            landlock_protects=lambda: self._landlock_protects, folder=home
        )
        sources = EngineSources(
            models=models or ConfiguredModels(self.configuration, in_use=self._models_in_use),
            mcp=ConfiguredMcp(self.configuration, lambda: self.active_plugins),
            skills=lambda cwd: self.skills.find(cwd),  # noqa: PLW0108 - found on first use
            find_hooks=ConfiguredHooks(self.configuration, lambda: self.active_plugins).of_thread,
            plugins=lambda disabled: self.active_plugins.mentionable(disabled),  # noqa: PLW0108 - late
            rule_folders=self._rule_folders,
            managed_rules=self._managed_rules,
            limit=self._limit,
            settings_folders=(str(self.configuration.system),),
            trusted_folders=self.configuration.trusted_folders,
            opened_roots=lambda: self.configuration.opened_roots,
        )
        self.threads = Threads(
            Store(
                home,
                clock=clock,
                creator=lambda: current_creator(self.configuration.credentials),
            ),
            EngineServices(home, sources, self.sandbox, clock=clock),
            on_spawn=self._introduce,
        )
        self._router: Router[ClientSession] = Router(
            {**CLIENT_REQUESTS, **LEGACY_REQUESTS}, guard=guard, translate=self._translate
        )
        handlers.register(self._router)
        self.sessions: set[ClientSession] = set()
        self.encoded_events = EncodedEvents()
        self.mcp_logins = McpLogins()
        self._shortage = Incident(logger, "requests fail: descriptors or memory are used up")
        self.is_finishing = False
        self._on_idle: Callable[[], object] | None = None
        # Workers that write the configuration and the login, which can block on other programs.
        self.settings_workers = Workers("settings", MAX_SETTINGS_WORKERS)
        # Each client uses a part of these threads: a client may have many connections.
        self.client_workers = Workers("fs", MAX_CLIENT_WORKERS)
        self.search_workers = Workers("search", MAX_SEARCH_WORKERS)

    @cached_property
    def account_logins(self) -> AccountLogins:
        """The ChatGPT login that waits for its user."""
        from treadle.server.account_logins import AccountLogins

        tasks = self.threads.services.tasks
        return AccountLogins(self.credentials, tasks, self.settings_workers, self._end_login)

    def _end_login(self, completed: AccountLoginCompletedNotification) -> None:
        from treadle.protocol.notifications import ACCOUNT_LOGIN_COMPLETED

        self.threads.services.broadcast(ACCOUNT_LOGIN_COMPLETED, completed)
        if completed.success:
            self.publish_account()

    def publish_account(self) -> None:
        """Notify all clients of the login in force."""
        from treadle.protocol.account import AccountUpdatedNotification
        from treadle.protocol.notifications import ACCOUNT_UPDATED

        login = self.credentials.current()
        updated = AccountUpdatedNotification(
            auth_mode=None if login is None else login.mode,
            plan_type=None if login is None else login.plan,
        )
        self.threads.services.broadcast(ACCOUNT_UPDATED, updated)
        # The tools of apps are those of the account.
        for thread_id in self.threads.loaded_ids():
            self.threads.get(thread_id).mcp.refresh()

    @cached_property
    def watcher(self) -> Watcher:
        """The file watcher shared by all clients."""
        from treadle.server.files.watch import Watcher

        return Watcher()

    @cached_property
    def skills_watch(self) -> SkillsWatch:
        """The watcher that notifies all clients when skills change."""
        from treadle.server.sources.skills_watch import SkillsWatch

        tasks = self.threads.services.tasks
        return SkillsWatch(self.watcher, tasks, self.publish_skills_changed)

    @cached_property
    def skills(self) -> ConfiguredSkills:
        """The skills that the threads of this server may use."""
        from treadle.server.sources.skills import ConfiguredSkills

        return ConfiguredSkills(self.configuration, lambda: self.active_plugins)

    @cached_property
    def active_plugins(self) -> ActivePlugins:
        """The installed and enabled plugins."""
        from treadle.server.plugins.active import ActivePlugins

        return ActivePlugins(self.configuration)

    @cached_property
    def apps(self) -> Apps:
        """The apps of the account that is logged in."""
        from treadle.server.apps.apps import Apps

        services = self.threads.services
        plugins = lambda: self.active_plugins  # noqa: E731 - made on first use
        return Apps(self.configuration, services, plugins, self._chatgpt_login)

    async def _chatgpt_login(self, rejected: Bearer | None) -> Bearer | None:
        """Return the login with ChatGPT, if that is how the server is signed in."""
        login = self.credentials.current()
        is_chatgpt = login is not None and login.is_chatgpt
        return await self.credentials.login(rejected) if is_chatgpt else None

    @cached_property
    def plugins(self) -> Plugins:
        """Lists, installs and removes plugins and marketplaces."""
        from treadle.server.plugins.plugins import Plugins

        return Plugins(self.configuration, self.active_plugins, self.sandbox)

    @cached_property
    def realtime(self) -> RealtimeConversations:
        """The realtime conversations of threads."""
        from treadle.server.realtime.conversations import RealtimeConversations

        return RealtimeConversations(self.configuration)

    def publish_skills_changed(self) -> None:
        """Notify all clients that there are other skills now."""
        from treadle.protocol.notifications import SKILLS_CHANGED
        from treadle.protocol.skill import SkillsChangedNotification

        self.threads.services.broadcast(SKILLS_CHANGED, SkillsChangedNotification())

    def warnings(self) -> Sequence[ConfigWarningNotification]:
        """Return the warnings for every client: faults of the configuration and the sandbox."""
        warnings: list[ConfigWarningNotification] = []
        try:
            sandbox = self.configuration.effective().sandbox
        except ConfigError:
            sandbox, warnings = None, self._configuration_warnings()
        if sandbox is not None:
            self._landlock_protects = sandbox.landlock_protects
        if self.threads.services.expects_commands:
            from treadle.engine.terminals.sandbox_status import sandbox_warning

            warnings += filter(None, [sandbox_warning(self.sandbox)])
        return warnings

    def _configuration_warnings(self) -> list[ConfigWarningNotification]:
        from treadle.config.warnings import requirements_invalid

        try:
            return list(self.configuration.lenient().warnings)
        except ConfigError as error:
            return [requirements_invalid(error)]

    def _translate(self, error: Exception) -> RpcError | None:
        """Translate an error; when descriptors are short, close idle ones."""
        if is_shortage(error):
            self._shortage.happened(str(error))
            self.threads.release_idle()
            if not isinstance(error, OSError):
                return InternalError(str(error) or "out of memory", kind="io")
        return translate(error)

    def _models_in_use(self) -> Sequence[Model]:
        return self.threads.models_in_use()

    def _introduce(self, parent: LoadedThread, child: LoadedThread) -> None:
        """Introduce a sub-agent to the clients that are subscribed to its parent."""
        for session in self.sessions:
            session.add_child(parent, child)

    def _rule_folders(self, cwd: str) -> list[Path]:
        """Return the rule folders of the trusted projects that contain this folder."""
        try:
            layers = self.configuration.effective(cwd).layers
        except ConfigError:
            return []  # an unreadable configuration grants no trust
        return [
            Path(layer.source.dot_codex_folder) / "rules"
            for layer in layers
            if isinstance(layer.source, ProjectConfigLayerSource) and layer.disabled_reason is None
        ]

    def _managed_rules(self) -> RuleFile | None:
        """Return the administrator's rules; if they are invalid, any command may be restricted."""
        try:
            return self.configuration.managed_rules()
        except ConfigError as error:
            from treadle.engine.commands.rule_file import RuleFile

            return RuleFile(unread=f"the rules cannot be read: {error}")

    def _limit(self, stored: RunSettings, otherwise: RunSettings) -> RunSettings:
        """Return stored permissions, with others in place of those not allowed any more."""
        from treadle.server.thread_settings import limited

        try:
            return limited(self.configuration.requirements(), stored, otherwise)
        except ConfigError:  # it is not known what is allowed
            return msgspec.structs.replace(stored, **otherwise.permissions())

    def unbuilt_methods(self) -> list[str]:
        """Return the protocol methods that this server does not implement yet."""
        return list(self._router.unhandled())

    async def serve(self, listener: Listener) -> None:
        """Answer every client until cancelled; commands of this server are refused as clients."""
        from treadle.sandbox.peers.identity import PeerCheck  # not needed by a server on pipes

        await listener.serve(self.attach, admit=PeerCheck(self.sandbox.networked).refusal)

    def finish(self) -> None:
        """Stop accepting requests, end the turns, publish their end and close all connections."""
        self.is_finishing = True
        self.threads.interrupt_turns()
        for session in self.sessions:
            if session.connection is not None:
                session.connection.finish(session.drain)

    async def close(self) -> None:
        """Finish, and release all resources; active turns are stored as interrupted."""
        self.finish()
        await self.threads.close()
        await self.credentials.close()
        if self._owns_sandbox:
            await self.sandbox.close()

    def when_idle(self, action: Callable[[], object]) -> None:
        """Call this when the last client disconnects."""
        self._on_idle = action

    async def attach(self, transport: Transport, *, answered: bytes | None = None) -> None:
        """Serve one client until it disconnects.

        `answered` is the line of an `initialize` request that has already been answered.
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
            ids=self.threads.services.request_ids,
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
            # A client without a handshake is not logged.
            if session.client is not None:
                logger.info("client disconnected", extra={"peer": transport.peer})


def _replay_handshake(session: ClientSession, line: bytes) -> None:
    call = envelope.decode(line)
    if not isinstance(call, envelope.RequestMessage):
        message = "only a request can have been answered"
        raise msgspec.ValidationError(message)
    session.initialize(decode_params(INITIALIZE, call.params))
