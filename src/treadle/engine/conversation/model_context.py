"""The model context of a thread: its history, and the messages that describe its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from treadle.engine.apps.mentions import AppMentions
from treadle.engine.conversation import instructions
from treadle.engine.conversation.compaction import compacted
from treadle.engine.conversation.context import (
    LastContext,
    describe,
    shown_context,
    to_context_items,
    turn_context,
)
from treadle.engine.conversation.history import History, size_of
from treadle.engine.conversation.input import (
    InputFiles,
    Readable,
    from_tool_output,
    message,
    to_model_items,
)
from treadle.engine.conversation.items import ItemStream
from treadle.engine.conversation.personality import personality_switch
from treadle.engine.conversation.sources import Source, without_sources, written_by
from treadle.engine.errors import InvalidInput
from treadle.engine.plugins.mentions import MAX_MENTIONS, describe_plugin, mentioned_plugins
from treadle.engine.project.docs import ProjectDocs, read_project_docs
from treadle.engine.turn import ActiveTurn, PendingInput
from treadle.model.base import ModelItem
from treadle.model.catalog import UNKNOWN, traits_of
from treadle.protocol import notifications as n
from treadle.protocol.base import JsonValue
from treadle.protocol.error import WarningNotification
from treadle.protocol.input import AdditionalContextEntry, TextUserInput
from treadle.protocol.item import ThreadItem, UserMessageThreadItem
from treadle.protocol.response_item import RawResponseItemCompletedNotification
from treadle.protocol.turn import TurnStartParams, TurnSteerParams
from treadle.store.records import CallCompleted, InputConsumed, InputQueued
from treadle.store.stored_thread import MAX_PREVIEW_CHARACTERS
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.conversation.messages import ClientMessages
    from treadle.engine.mcp.server import McpServer
    from treadle.engine.project.skills import Skills
    from treadle.engine.state import LoadedState, ThreadState
    from treadle.protocol.policy import SandboxPolicy


MAX_HISTORY_BYTES: Final = 64 * 1024 * 1024
"""The limit on the items that clients add to a history, with those that it has.

A history that grows beyond it by responses and outputs is compacted before the next request.
"""

SMALL_INPUT_BYTES: Final = 64 * 1024
"""A new turn accepts this much in any case: it may compact the history first."""


class _Folder(NamedTuple):
    """The instructions of a working folder to agents: its skills and its AGENTS.md files."""

    cwd: str
    skills: str | None
    docs: ProjectDocs


class ModelContext:
    """Maintains what the model of one thread sees."""

    def __init__(self, state: ThreadState, messages: ClientMessages, loaded: LoadedState) -> None:
        self.history = History(state.log, loaded.history)
        self._state = state
        self._messages = messages
        self._notes: list[InputQueued] = []
        # The size of the history after the last compaction.
        self._kept_bytes = 0
        self._last_context: LastContext | None = (
            shown_context(loaded.last_context, loaded.settings) if loaded.last_context else None
        )
        self._has_context = bool(loaded.history)
        self._warned_model: str | None = None
        # The skills that the model has seen; unset if an earlier server sent them.
        self._skills: str | UnsetType | None = UNSET
        self._client_context: dict[str, AdditionalContextEntry] = {}
        self._folder: _Folder | None = None
        # Ids of plugins that the input of the turn mentions, until they are described.
        self._mentioned: dict[str, None] = {}
        # The apps that the input of the active turn mentions.
        self.mentions = AppMentions()

    def message_of(
        self,
        params: TurnStartParams | TurnSteerParams,
        files: InputFiles,
        source: Source | None = None,
    ) -> PendingInput:
        """Return the input of a request, preceded by new or changed additional context."""
        output, items = None, to_model_items(params.input, files)
        tool_output = params.tool_output if isinstance(params, TurnStartParams) else None
        if tool_output is not None:
            if params.input:
                reason = "`toolOutput` cannot be combined with nonempty `input`"
                raise InvalidInput("toolOutput", reason)
            output, items = from_tool_output(tool_output)
        context = params.additional_context or {}
        changed = {
            name: entry
            for name, entry in context.items()
            if self._client_context.get(name) != entry
        }
        items = [*to_context_items(changed), *items]
        if self._state.turn is None:
            about = self._instructions_size(params)
            self.check_room(items, "input", free=SMALL_INPUT_BYTES, beside=about)
        else:
            self.check_room(items, "input")
        if params.input or output:
            self._client_context |= changed
        if self._state.meta.parent_thread_id is not None:
            # The agent above gives the tasks, also those in a later fork of the thread.
            source = "agent"
        if source is not None:
            items = [written_by(source, item) for item in items]
        return PendingInput(params.input, items, params.client_user_message_id, output)

    def _instructions_size(self, params: TurnStartParams | TurnSteerParams) -> int:
        """Return how long the client's instructions are that a new turn may show once more."""
        settings = self._state.settings
        asked = params.collaboration_mode if isinstance(params, TurnStartParams) else None
        mode = asked or settings.collaboration_mode
        texts = (settings.developer_instructions, mode and mode.settings.developer_instructions)
        return sum(len(text) for text in texts if text)

    def check_room(
        self, items: Sequence[ModelItem], path: str, *, free: int = 0, beside: int = 0
    ) -> None:
        """Check that items of a client fit into the history; up to `free` bytes always do.

        What comes with them takes `beside` bytes.

        Raises:
            InvalidInput: the history would exceed its limit.
        """
        size = size_of(items) + beside
        if size <= free:
            return
        turn = self._state.turn
        waiting = [*self._notes, *(turn.pending_input if turn is not None else ())]
        total = size + self.history.size + sum(size_of(each.items) for each in waiting)
        if total > MAX_HISTORY_BYTES:
            advice = "compact the thread or start another one"
            limit = f"at most {MAX_HISTORY_BYTES} bytes; {advice}"
            reason = f"{path} is too large: the model context would have {total} bytes, {limit}"
            raise InvalidInput(path, reason)

    def is_nearly_full(self) -> bool:
        """Whether the next request might not fit into the context window."""
        state = self._state
        limit = state.settings.auto_compact_limit or state.context_window * 9 // 10
        if state.usage.fill >= limit and self._can_shrink():
            return True
        # Whatever the provider counts. A compaction keeps images of the user: these alone do not
        # cause the next one.
        return self.history.size > max(MAX_HISTORY_BYTES, self._kept_bytes + MAX_HISTORY_BYTES // 2)

    def mark_full(self, turn: ActiveTurn) -> None:
        """Force a compaction before the next request: the last one of the turn did not fit."""
        if turn.side is None:
            self._state.usage.set_fill(self._state.context_window)

    def compact(self, summary: str) -> None:
        """Replace the history with the model's own summary."""
        self._skills = self._current_skills()
        items = compacted(self.history.items, self._describe(self._skills), summary)
        self.history.replace(items, summary)
        self._kept_bytes = self.history.size
        self._client_context.clear()
        self._state.usage.set_fill(0)

    def _can_shrink(self) -> bool:
        return any(item.get("role") == "assistant" for item in self.history.items)

    def add_note(self, *items: ModelItem, required: bool = False) -> None:
        """Add items to the history now, or, during a turn, after the current response.

        Raises:
            StorageFailed: `required` items cannot be stored.
        """
        if self._state.turn is None:
            (self.history.store if required else self.history.add)(*items)
            return
        note = InputQueued(uuid7(), list(items))
        (self._state.log.store if required else self._state.log.record)(note)
        self._notes.append(note)

    def flush_notes(self) -> None:
        """Add the pending notes to the history."""
        notes, self._notes = self._notes, []
        for note in notes:
            self._state.log.record(*self.history.take(*note.items), InputConsumed(note.id))

    def queue_input(self, turn: ActiveTurn, pending: PendingInput) -> None:
        """Queue input for a turn; stored first, so that it survives the server."""
        parts = (pending.items, turn.id, pending.content, pending.client_id, pending.output)
        record = InputQueued(uuid7(), *parts, next_seq=self._state.log.last_seq + 1)
        self._messages.store(pending, turn, [record])
        turn.pending_input.append(replace(pending, id=record.id))

    def history_of(self, turn: ActiveTurn) -> History:
        """Return the thread's history, or that of the turn's side conversation."""
        return self.history if turn.side is None else turn.side.history

    def used_ids(self, turn: ActiveTurn) -> list[str]:
        """Return the ids of all items and calls in the history of a turn."""
        names = ("id", "call_id")
        ids = [item.get(name) for item in self.history_of(turn).items for name in names]
        return [id_ for id_ in ids if isinstance(id_, str)]

    def remember(self, turn: ActiveTurn, *items: ModelItem) -> None:
        """Add items to the history, and publish the raw items if a client requested them."""
        self.history_of(turn).add(*items)
        self._publish_raw(turn, items)

    def record_output(self, turn: ActiveTurn, output: ModelItem) -> None:
        """Record the output of a call before it can be added to the history."""
        if turn.side is None:
            self._state.log.record(CallCompleted(output))

    def add_response_item(self, turn: ActiveTurn, item: ModelItem, stream: ItemStream) -> None:
        """Add a finished item of a response to history and turn, stored atomically."""
        records = self.history_of(turn).take(item)
        if not stream.finish(item, records):
            self._state.log.record(*records)
        self._publish_raw(turn, (item,))

    def add_input(self, turn: ActiveTurn, pending: PendingInput) -> None:
        """Add pending input to history and turn, stored atomically.

        If only one of them were stored, a repeated message would be lost or duplicated.
        """
        item: ThreadItem
        if pending.output is not None:
            item = pending.output
        elif pending.content:
            item = UserMessageThreadItem(pending.content, id=uuid7(), client_id=pending.client_id)
        else:  # only for the model
            records = self.history_of(turn).take(*pending.items)
            self._state.log.record(*records, *pending.consumed_records)
            self._publish_raw(turn, pending.items)
            return
        self._publish_raw(turn, pending.items)
        self._mentioned |= dict.fromkeys(mentioned_plugins(pending.content))
        self.mentions.add(pending.content)
        self._set_preview(pending)
        turn.start_item(item)
        records = self.history_of(turn).take(*pending.items)
        turn.complete_item(item, [*records, *pending.consumed_records])

    def discard(self, pending: PendingInput) -> None:
        """Drop pending input that must not reach the model."""
        self._state.log.record(*pending.consumed_records)

    def _publish_raw(self, turn: ActiveTurn, items: Sequence[ModelItem]) -> None:
        if self._state.settings.publishes_raw_events:
            for item in without_sources(items):
                raw: JsonValue = item
                params = RawResponseItemCompletedNotification(raw, self._state.id, turn.id)
                self._state.log.publish(n.RAW_RESPONSE_ITEM_COMPLETED, params)

    def _set_preview(self, message: PendingInput) -> None:
        """Set the preview to the user's first message, for lists of threads."""
        if self._state.meta.preview:
            return
        texts = [part.text for part in message.content if isinstance(part, TextUserInput)]
        if any(texts):
            self._state.update_meta(preview="\n".join(texts)[:MAX_PREVIEW_CHARACTERS])

    def add_context(self, turn: ActiveTurn) -> None:
        """Record the turn's settings; describe them to the model once and after a change."""
        self.mentions.clear()
        settings = self._state.settings_of(turn)
        context = turn_context(settings, turn)
        self._state.log.record(context)
        self._state.update_meta(cwd=context.cwd)  # a resumed thread may continue in another one
        now, before = shown_context(context, settings), self._last_context
        self._last_context = now
        if before is not None and before.model != now.model:
            switched = instructions.model_switch(before.model, now.model)
            self.remember(turn, message("developer", switched))
        if before is not None and before.style != now.style:
            self.remember(turn, message("developer", personality_switch(now.style)))
        is_unchanged = before is None or before.environment == now.environment
        if not (self._has_context and is_unchanged):
            self._has_context = True
            self._skills = self._current_skills()
            self.remember(turn, *self._describe(self._skills))
        else:
            self._update_skills(turn)

    async def describe_mentions(self, turn: ActiveTurn, servers: Iterable[McpServer]) -> None:
        """Describe the apps and plugins that new input mentions, with what of them works."""
        for server in servers:
            if server.apps is not None and self.mentions.has_any:
                text = self.mentions.describe(server.app_tools)
                if text is not None:
                    self.remember(turn, message("developer", text))
        mentioned, self._mentioned = list(self._mentioned)[:MAX_MENTIONS], {}
        if not mentioned:
            return
        services, disabled = self._state.services, self._state.settings.disabled_plugin_ids
        plugins = await services.file_workers.run(services.plugins, disabled)
        working = [each for each in servers if each.status in ("starting", "connected")]
        for plugin in plugins:
            if plugin.id not in mentioned:
                continue
            own = [each.name for each in working if each.plugin_id == plugin.id]
            text = describe_plugin(plugin, own)
            if text is not None:
                self.remember(turn, message("developer", text))

    def warn_unknown_model(self) -> None:
        """Publish a warning, once, if the catalog does not have the model."""
        model = self._state.settings.model
        if self._warned_model != model and traits_of(model) is UNKNOWN:
            self._warned_model = model
            text = f"Unknown model `{model}`; using default limits."
            self._state.log.publish(n.WARNING, WarningNotification(text, self._state.id))

    def context_items(self) -> list[ModelItem]:
        """Return the messages that describe permissions, environment and instructions."""
        return self._describe(self._current_skills())

    def _describe(self, skills: str | None) -> list[ModelItem]:
        state = self._state
        return describe(state.settings, self._last_folder().docs, skills, state.services.clock())

    def _current_skills(self) -> str | None:
        return self._last_folder().skills

    async def read_folder(self) -> None:
        """Read the working folder's instructions in a worker: they may be large or slow."""
        cwd, may_read = self._state.settings.cwd, self._may_read()
        self._folder = await self._state.services.file_workers.run(self._read_folder, cwd, may_read)

    def _may_read(self) -> Callable[[str], bool]:
        settings = self._state.settings
        return self._state.services.boundary.may_read(settings.sandbox, settings.cwd)

    def _read_folder(self, cwd: str, may_read: Callable[[str], bool]) -> _Folder:
        docs = read_project_docs(Path(cwd), may_read=may_read, home=self._state.services.home)
        # The skills of a project may be links, like its AGENTS.md.
        skills = self._skills_of(cwd).offered(may_read)
        return _Folder(cwd, instructions.skills(skills), docs)

    def readable(self, cwd: str | None = None, sandbox: SandboxPolicy | None = None) -> Readable:
        """Return which files the user's input may name; the defaults are those of the thread."""
        settings, boundary = self._state.settings, self._state.services.boundary
        sandbox, folder = sandbox or settings.sandbox, cwd or settings.cwd
        may_read = boundary.may_read(sandbox, folder)
        return Readable(
            may_read,
            lambda: {skill.path for skill in self._skills_of(folder).usable(may_read)},
            boundary.may_follow(sandbox, folder),
        )

    def _skills_of(self, cwd: str) -> Skills:
        """Return the skills of a folder, without those of plugins that the thread disables."""
        return self._state.services.skills(cwd).without(self._state.settings.disabled_plugin_ids)

    def _last_folder(self) -> _Folder:
        """Return the folder's instructions as last read."""
        if self._folder is None or self._folder.cwd != self._state.settings.cwd:
            self._folder = self._read_folder(self._state.settings.cwd, self._may_read())
        return self._folder

    def _update_skills(self, turn: ActiveTurn) -> None:
        """Send the model the list of skills if it changed."""
        skills = self._current_skills()
        if skills != self._skills and self._skills is not UNSET:
            self.remember(turn, message("developer", skills or instructions.NO_SKILLS))
        self._skills = skills

    def reset_history(self, history: Sequence[ModelItem]) -> None:
        """Return to an earlier history."""
        self.history = History(self._state.log, history)
        self._client_context.clear()
        self._last_context = None
        self._has_context = bool(history)
        self._state.usage.set_fill(0)
