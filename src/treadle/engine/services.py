"""What the threads of a server share: configuration sources, workers, tasks and broadcasts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec
from msgspec import Struct

from treadle.engine.events.log import EventLog
from treadle.engine.patch.resources import PatchResources
from treadle.engine.settings import RunSettings
from treadle.model.base import Model
from treadle.model.retry import RetryPolicy
from treadle.protocol import notifications as n
from treadle.protocol.base import JsonValue
from treadle.protocol.method import Notification
from treadle.support.clock import NowMs, now_ms
from treadle.support.concurrency.tasks import BackgroundTasks
from treadle.support.concurrency.workers import Workers

# Imported with the first thread: these modules pull in everything that an agent can do.
if TYPE_CHECKING:
    from treadle.engine.commands.rule_file import RuleFile
    from treadle.engine.commands.rules import Rules, RulesCache
    from treadle.engine.hooks.hook import FindHooks, FoundHooks
    from treadle.engine.mcp.config import McpSource
    from treadle.engine.plugins.mentions import MentionedPlugin
    from treadle.engine.project.skills import Skills
    from treadle.sandbox.boundary import Boundary
    from treadle.sandbox.opened_roots import OpenedRoots
    from treadle.sandbox.sandbox import Sandbox

P = TypeVar("P", bound=msgspec.Struct)

MAX_FILE_WORKERS: Final = 32
MAX_IMAGE_WORKERS: Final = 2
MAX_TEXT_WORKERS: Final = 4


class Models(Protocol):
    """Creates models."""

    def model(self, settings: RunSettings) -> tuple[Model, RetryPolicy]:
        """Return the model that these settings name, and its retry policy."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


def _no_skills(cwd: str) -> Skills:  # noqa: ARG001 - as the sources have it
    from treadle.engine.project.skills import Skills

    return Skills([], [])


def _no_hooks(settings: RunSettings) -> FoundHooks:  # noqa: ARG001 - as the sources have it
    from treadle.engine.hooks.hook import NOTHING

    return NOTHING


def _no_plugins(disabled: Collection[str]) -> tuple[()]:  # noqa: ARG001 - as the sources have it
    return ()


def _none_in_folder(cwd: str) -> tuple[()]:  # noqa: ARG001 - as the sources have it
    return ()


def _as_stored(stored: RunSettings, otherwise: RunSettings) -> RunSettings:  # noqa: ARG001 - as the sources have it
    return stored


class EngineSources(Struct, frozen=True, kw_only=True):
    """Where the engine gets its models and its configuration from; most are empty by default."""

    models: Models
    mcp: McpSource | None = None
    # Returns the skills that apply in a folder.
    skills: Callable[[str], Skills] = _no_skills
    # Returns the hooks of a thread with these settings.
    find_hooks: FindHooks = _no_hooks
    # Returns the active plugins, except some by id; reads files.
    plugins: Callable[[Collection[str]], Sequence[MentionedPlugin]] = _no_plugins
    # Returns folders with the rules of a trusted project, besides the user's own.
    rule_folders: Callable[[str], Sequence[Path]] = _none_in_folder
    # Returns the administrator's rules.
    managed_rules: Callable[[], RuleFile | None] = lambda: None
    # Replaces stored permissions that the administrator does not allow by others.
    limit: Callable[[RunSettings, RunSettings], RunSettings] = _as_stored
    # Configuration folders besides the home, and the folders of trusted projects.
    settings_folders: Sequence[str] = ()
    trusted_folders: Callable[[], Sequence[str]] = tuple
    # Returns the record of folders that commands were able to write; by default, the home's own.
    opened_roots: Callable[[], OpenedRoots] | None = None


class EngineServices:
    """The services that the threads of one server share."""

    def __init__(
        self, home: Path, sources: EngineSources, sandbox: Sandbox, *, clock: NowMs = now_ms
    ) -> None:
        self.home = home
        # Starts all commands.
        self.sandbox = sandbox
        self.clock = clock
        self.skills = sources.skills
        # Blocks: call it in a worker thread.
        self.find_hooks = sources.find_hooks
        self.plugins = sources.plugins
        self.limit = sources.limit
        self.tasks = BackgroundTasks()
        # Worker threads that read files named by clients and models.
        self.file_workers = Workers("files", MAX_FILE_WORKERS)
        # An image takes several times its size while it is read and encoded.
        self.image_workers = self.file_workers.part(MAX_IMAGE_WORKERS)
        # Worker threads that process long texts of models and MCP servers.
        self.text_workers = Workers("texts", MAX_TEXT_WORKERS)
        # Resources that patches of all threads share.
        self.patches = PatchResources()
        self.broadcasts = EventLog(None, clock)
        # Numbers for server requests.
        self.request_ids: Iterator[int] = count()
        self.expects_commands = False
        self._sources = sources

    def model(self, settings: RunSettings) -> tuple[Model, RetryPolicy]:
        """Return the model that these settings name, and its retry policy."""
        return self._sources.models.model(settings)

    @cached_property
    def mcp(self) -> McpSource:
        """The source of MCP configuration; empty by default."""
        if self._sources.mcp is not None:
            return self._sources.mcp
        from treadle.engine.mcp.servers import NoMcp

        return NoMcp()

    @cached_property
    def boundary(self) -> Boundary:
        """Decides what commands and tools may write."""
        from treadle.sandbox.boundary import Boundary
        from treadle.sandbox.opened_roots import OpenedRoots
        from treadle.sandbox.protection import server_protection

        sources = self._sources
        protection = server_protection(
            str(self.home), folders=sources.settings_folders, trusted=sources.trusted_folders
        )
        opened = sources.opened_roots() if sources.opened_roots else OpenedRoots(self.home)
        return Boundary(protection, opened)

    @cached_property
    def _rules(self) -> RulesCache:
        from treadle.engine.commands.rules import RulesCache

        return RulesCache()

    def rules(self, cwd: str) -> Rules:
        """Return the command rules: the administrator's, the user's, and a trusted project's."""
        folders = [self.home / "rules", *self._sources.rule_folders(cwd)]
        return self._rules.load(folders, self._sources.managed_rules())

    def prepare_sandbox(self) -> None:
        """Prepare the sandbox, once, while the model produces its first command."""
        if not self.expects_commands and not self.tasks.is_closed:
            self.expects_commands = True
            from treadle.engine.terminals.sandbox_status import make_ready

            self.tasks.spawn(
                make_ready(self.sandbox, self.home, self.broadcasts), "prepare the sandbox"
            )

    def broadcast(self, method: Notification[P], params: P) -> None:
        """Publish a notification to all clients."""
        self.broadcasts.publish(method, params)

    def on_rate_limits(self, snapshot: JsonValue) -> None:
        """Broadcast the rate limits that a provider reported."""
        params = msgspec.convert({"rateLimits": snapshot}, n.ACCOUNT_RATE_LIMITS_UPDATED.params)
        self.broadcast(n.ACCOUNT_RATE_LIMITS_UPDATED, params)

    async def close(self) -> None:
        """Close the connections to all models."""
        await self._sources.models.close()
