"""What the model sees of a thread, and how it comes to see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from treadle.engine.conversation import instructions
from treadle.engine.conversation.compaction import compacted
from treadle.engine.conversation.context import LastContext, added, describe, told_by, turn_context
from treadle.engine.conversation.history import History
from treadle.engine.conversation.input import InputFiles, from_outside, message, to_model_items
from treadle.engine.conversation.items import ItemStream
from treadle.engine.errors import InvalidInput
from treadle.engine.project.docs import ProjectDocs, read_project_docs
from treadle.engine.turn import ActiveTurn, Message
from treadle.model.base import ModelItem
from treadle.model.catalog import UNKNOWN, traits_of
from treadle.protocol import notifications as n
from treadle.protocol.base import JsonValue
from treadle.protocol.error import WarningNotification
from treadle.protocol.input import AdditionalContextEntry, TextUserInput
from treadle.protocol.item import ThreadItem, UserMessageThreadItem
from treadle.protocol.response_item import RawResponseItemCompletedNotification
from treadle.protocol.turn import TurnStartParams, TurnSteerParams
from treadle.store.records import CallDone, InputGiven, InputTaken
from treadle.support.ids import uuid7

if TYPE_CHECKING:
    from treadle.engine.accounting.thread_usage import UsageTracker
    from treadle.engine.conversation.messages import ClientMessages
    from treadle.engine.events.log import EventLog
    from treadle.engine.services import EngineServices, LoadedState
    from treadle.engine.settings import RunSettings
    from treadle.store.stored_thread import ThreadMeta


class _Folder(NamedTuple):
    """What a working folder says to agents: its skills, and its AGENTS.md files."""

    cwd: str
    skills: str | None
    docs: ProjectDocs


class ModelContext:
    """The part of a thread that speaks to the model; the thread itself is the rest."""

    id: str
    meta: ThreadMeta
    settings: RunSettings
    log: EventLog
    services: EngineServices
    usage: UsageTracker
    messages: ClientMessages
    turn: ActiveTurn | None

    def __init__(self, loaded: LoadedState) -> None:
        self.history = History(self.log, loaded.history)
        self._notes: list[InputGiven] = []
        self._told: LastContext | None = told_by(loaded.last) if loaded.last else None
        self._has_context = bool(loaded.history)
        self._warned_of: str | None = None
        # What the model was told of skills; not set where an earlier server told it.
        self._skills: str | UnsetType | None = UNSET
        self._added: dict[str, AdditionalContextEntry] = {}
        self._seen: _Folder | None = None

    def settings_of(self, turn: ActiveTurn) -> RunSettings:
        """What a turn runs under: the thread's settings and the turn's own changes."""
        return replace(self.settings, **turn.changes) if turn.changes else self.settings

    def _message(self, params: TurnStartParams | TurnSteerParams, files: InputFiles) -> Message:
        """What the user says, and before it what the client adds that was not told yet."""
        output, items = None, to_model_items(params.input, files)
        handed_in = params.tool_output if isinstance(params, TurnStartParams) else None
        if handed_in is not None:
            if params.input:
                reason = "`toolOutput` cannot be combined with nonempty `input`"
                raise InvalidInput("toolOutput", reason)
            output, items = from_outside(handed_in)
        given = params.additional_context or {}
        news = {name: entry for name, entry in given.items() if self._added.get(name) != entry}
        if params.input or output:
            self._added |= news
        items = [*added(news), *items]
        return Message(params.input, items, params.client_user_message_id, output)

    @property
    def context_window(self) -> int:
        """How many tokens the model takes: as configured, or as is known of it."""
        return self.settings.context_window or traits_of(self.settings.model).context_window

    def is_nearly_full(self) -> bool:
        """Whether the next request might not fit into the model's context."""
        limit = self.settings.auto_compact_limit or self.context_window * 9 // 10
        return self.usage.fill >= limit and self._can_shrink()

    def overflowed(self) -> None:
        """Note that the last request did not fit: the next one is made after a compaction."""
        self.usage.fill = self.context_window

    def compact(self, notes: str) -> None:
        """Go on from the model's own notes."""
        self._skills = self._skills_now()
        items = compacted(self.history.items, self._describe(self._skills), notes)
        self.history.replace(items, notes)
        self._added.clear()
        self.usage.fill = 0

    def _can_shrink(self) -> bool:
        return any(item.get("role") == "assistant" for item in self.history.items)

    def tell_model(self, *items: ModelItem) -> None:
        """Let the model know something, as soon as that tears none of its answers apart."""
        if self.turn is None:
            self.history.add(*items)
            return
        note = InputGiven(uuid7(), list(items))
        self.log.record(note)
        self._notes.append(note)

    def pass_notes(self) -> None:
        """Add to the model's view what has waited for a good moment."""
        notes, self._notes = self._notes, []
        for note in notes:
            self.log.record(*self.history.take(*note.items), InputTaken(note.id))

    def expect(self, turn: ActiveTurn, said: Message) -> None:
        """Let a turn take up input when it can; stored first, for the server may die before."""
        parts = (said.items, turn.id, said.content, said.client_id, said.output)
        given = InputGiven(uuid7(), *parts, next_seq=self.log.last_seq + 1)
        self.messages.note(said, turn, [given])
        turn.waiting.append(replace(said, id=given.id))

    def history_of(self, turn: ActiveTurn) -> History:
        """What the model sees in a turn: the thread's history, unless the turn has its own."""
        return self.history if turn.aside is None else turn.aside.history

    def used_ids(self, turn: ActiveTurn) -> list[str]:
        """Return the ids of the model's items and calls that a turn may have."""
        names = ("id", "call_id")
        found = [item.get(name) for item in self.history_of(turn).items for name in names]
        return [id_ for id_ in found if isinstance(id_, str)]

    def remember(self, turn: ActiveTurn, *items: ModelItem) -> None:
        """Add to the model's view; clients that asked for it are shown the raw items."""
        self.history_of(turn).add(*items)
        self._tell_raw(turn, items)

    def note_output(self, turn: ActiveTurn, output: ModelItem) -> None:
        """Store the output of a call that the model can only be given later."""
        if turn.aside is None:
            self.log.record(CallDone(output))

    def keep(self, turn: ActiveTurn, item: ModelItem, stream: ItemStream) -> None:
        """Take a finished item of the model: its view and the client's are stored as one."""
        records = self.history_of(turn).take(item)
        if not stream.finish(item, records):
            self.log.record(*records)
        self._tell_raw(turn, (item,))

    def hear(self, turn: ActiveTurn, said: Message) -> None:
        """Take up what the user said: the model's view of it and the client's are stored as one.

        A message of which only one was stored would be lost or doubled when it is sent again.
        """
        item: ThreadItem
        if said.output is not None:
            item = said.output
        elif said.content:
            item = UserMessageThreadItem(said.content, id=uuid7(), client_id=said.client_id)
        else:  # only for the model
            self.log.record(*self.history_of(turn).take(*said.items), *said.taken)
            self._tell_raw(turn, said.items)
            return
        self._tell_raw(turn, said.items)
        self._note_preview(said)
        turn.start_item(item)
        turn.complete_item(item, [*self.history_of(turn).take(*said.items), *said.taken])

    def _tell_raw(self, turn: ActiveTurn, items: Sequence[ModelItem]) -> None:
        if self.settings.publishes_raw_events:
            for item in items:
                raw: JsonValue = item
                params = RawResponseItemCompletedNotification(raw, self.id, turn.id)
                self.log.publish(n.RAW_RESPONSE_ITEM_COMPLETED, params)

    def _note_preview(self, message: Message) -> None:
        """Note the user's first words: a list of threads shows them."""
        if self.meta.preview:
            return
        texts = [part.text for part in message.content if isinstance(part, TextUserInput)]
        if any(texts):
            self.meta = msgspec.structs.replace(self.meta, preview="\n".join(texts))

    def tell_context(self, turn: ActiveTurn) -> None:
        """Store what the turn runs under; tell the model where it is, once and after a change."""
        context = turn_context(self.settings_of(turn), turn)
        self.log.record(context)
        told, before = told_by(context), self._told
        self._told = told
        if before is not None and before.model != told.model:
            switched = instructions.model_switch(before.model, told.model)
            self.remember(turn, message("developer", switched))
        is_known = before is None or before.surroundings == told.surroundings
        if not (self._has_context and is_known):
            self._has_context = True
            self._skills = self._skills_now()
            self.remember(turn, *self._describe(self._skills))
        else:
            self._tell_skills(turn)

    def warn_of_model(self) -> None:
        """Say once that a model is not known here: its limits are a guess."""
        model = self.settings.model
        if self._warned_of != model and traits_of(model) is UNKNOWN:
            self._warned_of = model
            text = f"Nothing is known of the model `{model}`; its limits are guessed."
            self.log.publish(n.WARNING, WarningNotification(text, self.id))

    def context_items(self) -> list[ModelItem]:
        """The messages that describe the surroundings."""
        return self._describe(self._skills_now())

    def _describe(self, skills: str | None) -> list[ModelItem]:
        return describe(self.settings, self._folder().docs, skills, self.services.clock())

    def _skills_now(self) -> str | None:
        return self._folder().skills

    async def look_around(self) -> None:
        """Read what the folder says to agents, in a worker thread: it may be large, or slow."""
        cwd = self.settings.cwd
        self._seen = await self.services.file_workers.run(self._look, cwd)

    def _look(self, cwd: str) -> _Folder:
        docs = read_project_docs(Path(cwd), home=self.services.home)
        return _Folder(cwd, instructions.skills(self.services.skills(cwd)), docs)

    def _folder(self) -> _Folder:
        """What the folder says to agents, as it was last seen."""
        if self._seen is None or self._seen.cwd != self.settings.cwd:
            self._seen = self._look(self.settings.cwd)
        return self._seen

    def _tell_skills(self, turn: ActiveTurn) -> None:
        """Tell the model which skills there are, if it was told of others before."""
        known = self._skills_now()
        if known != self._skills and self._skills is not UNSET:
            self.remember(turn, message("developer", known or instructions.NO_SKILLS))
        self._skills = known

    def project_docs(self) -> ProjectDocs:
        """The AGENTS.md files that apply here."""
        return read_project_docs(Path(self.settings.cwd), home=self.services.home)

    def look_back(self, history: Sequence[ModelItem]) -> None:
        """Go on from an earlier view."""
        self.history = History(self.log, history)
        self._added.clear()
        self._told = None
        self._has_context = bool(history)
        self.usage.fill = 0
