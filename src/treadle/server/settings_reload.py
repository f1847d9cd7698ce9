"""Applies a changed configuration to loaded threads; what clients chose stays."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from treadle.config.file import ConfigError
from treadle.engine.conversation.context import turn_context
from treadle.engine.errors import EngineError
from treadle.engine.events.intake import keep_settings
from treadle.engine.settings import RunSettings
from treadle.protocol import notifications as n
from treadle.protocol.error import WarningNotification
from treadle.store.journal import StorageFailed

if TYPE_CHECKING:
    from treadle.config.configuration import Configuration
    from treadle.engine.thread import LoadedThread
    from treadle.server.server import Server

logger = logging.getLogger(__name__)

# Settings of one group belong together: if a client chose one of them, all of them stay.
_OF_MODEL: Final = ("model", "model_provider")
_OF_SANDBOX: Final = ("sandbox", "permission_profile", "network")
# What a sub-agent gets from its parent or from the model that started it.
_INHERITED: Final = (
    (*_OF_MODEL, "effort"),
    ("approval_policy",),
    ("approvals_reviewer",),
    _OF_SANDBOX,
)
_GROUPS: Final = (
    _OF_MODEL,
    _OF_SANDBOX,
    *(
        (name,)
        for name in (
            "approval_policy",
            "approvals_reviewer",
            "effort",
            "summary",
            "verbosity",
            "personality",
            "service_tier",
            "context_window",
            "auto_compact_limit",
            "agents",
            "features",
            "shell",
            "web_search",
            "web_search_options",
        )
    ),
)


def differing(settings: RunSettings, other: RunSettings) -> frozenset[str]:
    """Return the names of the settings that a reload changes, and that differ."""
    names = (name for group in _GROUPS for name in group)
    return frozenset(name for name in names if getattr(settings, name) != getattr(other, name))


async def reload_threads(server: Server, only: Collection[str] | None = None) -> None:
    """Apply the configuration to all loaded threads; `only` names the settings, default all.

    A thread whose configuration cannot be read keeps its settings, and its clients get a warning.
    """
    workers = server.threads.services.file_workers
    for thread_id in server.threads.loaded_ids():
        thread = server.threads.find(thread_id)
        if thread is None:
            continue
        is_child = thread.meta.parent_thread_id is not None
        try:
            current = await workers.run(_read, server.configuration, thread.settings)
        except (ConfigError, EngineError) as error:
            _warn(thread, f"the configuration was not reloaded: {error}")
            continue
        # The client may have changed them meanwhile.
        _apply(thread, _reloaded(thread.settings, current, only, is_child=is_child))


def _read(configuration: Configuration, settings: RunSettings) -> RunSettings:
    from treadle.server.thread_settings import configured

    return configured(
        configuration.effective(settings.cwd, settings.config), settings.cwd, settings.config
    )


def _reloaded(
    settings: RunSettings, current: RunSettings, only: Collection[str] | None, *, is_child: bool
) -> RunSettings:
    kept = {name for group in _INHERITED for name in group} if is_child else set()
    kept |= settings.client_choices
    names = (name for group in _GROUPS if kept.isdisjoint(group) for name in group)
    changed = {name: getattr(current, name) for name in names if only is None or name in only}
    return replace(settings, **changed)


def _apply(thread: LoadedThread, settings: RunSettings) -> None:
    if not settings.differs_from(thread.settings):
        return
    try:
        if turn_context(settings) != turn_context(thread.settings):
            keep_settings(thread, settings)
    except StorageFailed as failure:
        _warn(thread, f"the configuration was not reloaded: {failure}")
        return
    thread.update_settings(settings)


def _warn(thread: LoadedThread, text: str) -> None:
    logger.warning("configuration not reloaded", extra={"thread_id": thread.id})
    thread.log.publish(n.WARNING, WarningNotification(text, thread.id))
