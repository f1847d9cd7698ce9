"""Converts the model's stream to the items and deltas that clients see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from treadle.engine.conversation.plans.proposed import PlanSplitter, split
from treadle.engine.turn import ActiveTurn
from treadle.model.base import (
    ItemStarted,
    ModelEvent,
    ModelItem,
    ModelTextDelta,
    ReasoningPartAdded,
    ReasoningSummaryDelta,
    ReasoningTextDelta,
    Restarted,
)
from treadle.protocol import notifications as n
from treadle.protocol.base import JsonValue
from treadle.protocol.delta import (
    AgentMessageDeltaNotification,
    PlanDeltaNotification,
    ReasoningSummaryPartAddedNotification,
    ReasoningSummaryTextDeltaNotification,
    ReasoningTextDeltaNotification,
)
from treadle.protocol.item import (
    AgentMessageThreadItem,
    PlanThreadItem,
    ReasoningThreadItem,
    ThreadItem,
    WebSearchThreadItem,
)
from treadle.protocol.web_search import (
    FindInPageWebSearchAction,
    OpenPageWebSearchAction,
    OtherWebSearchAction,
    SearchWebSearchAction,
    WebSearchAction,
)
from treadle.store.records import AnyRecord

# Not a set: a value that is looked up may be a list.
_PHASES: Final = ("commentary", "partial_answer", "final_answer")


class ItemStream:
    """Publishes the messages, reasoning and web searches of one response as items."""

    def __init__(self, turn: ActiveTurn, *, finds_plans: bool = False) -> None:
        self._turn = turn
        self._finds_plans = finds_plans
        self._splitters: dict[str, PlanSplitter] = {}
        self._texts: dict[str, list[str]] = {}
        self._summaries: dict[str, dict[int, list[str]]] = {}
        self._reasoning: dict[str, dict[int, list[str]]] = {}

    def take(self, event: ModelEvent) -> None:
        """Publish an event of the model, if clients see it."""
        match event:
            case ModelTextDelta():
                self._on_text(event)
            case ReasoningSummaryDelta() | ReasoningTextDelta() | ReasoningPartAdded():
                self._on_reasoning(event)
            case ItemStarted():
                self._on_started(event.item)
            case Restarted():
                self._on_restarted()
            case _:
                pass

    def finish(self, item: ModelItem, records: Sequence[AnyRecord]) -> bool:
        """Publish a finished item, stored atomically with `records`; false if it is not shown."""
        shown = to_thread_item(item)
        if shown is None:
            return False
        if self._finds_plans and isinstance(shown, AgentMessageThreadItem):
            shown = self._without_plan(shown)
        self._turn.complete_item(shown, records, content_token_count=_token_count(item))
        return True

    def abandon(self) -> None:
        """Complete the items of a broken response with the text received so far."""
        for open_item in list(self._turn.open_items.values()):
            item = open_item.current()
            if isinstance(item, AgentMessageThreadItem | ReasoningThreadItem | PlanThreadItem):
                self._turn.complete_item(item)

    def _on_restarted(self) -> None:
        self.abandon()
        for parts in (self._texts, self._summaries, self._reasoning, self._splitters):
            parts.clear()

    def _without_plan(self, item: AgentMessageThreadItem) -> AgentMessageThreadItem:
        """Publish the plan in a message as a separate item; return the rest of the message."""
        for is_plan, text in self._splitter(item.id).finish():
            self._publish_text(item.id, text, is_plan=is_plan)
        rest, plan = split(item.text)
        if plan is not None:
            self._turn.complete_item(PlanThreadItem(self._plan_id, plan))
        return msgspec.structs.replace(item, text=rest)

    def _on_started(self, item: ModelItem) -> None:
        shown = to_thread_item(item)
        if shown is None or shown.id in self._turn.open_items:
            return
        current: Callable[[], ThreadItem] | None = None
        if isinstance(shown, AgentMessageThreadItem):
            current = lambda: self._message_so_far(shown)  # noqa: E731 - a bound view
        elif isinstance(shown, ReasoningThreadItem):
            current = lambda: self._reasoning_so_far(shown.id)  # noqa: E731 - a bound view
        self._turn.start_item(shown, current)

    def _on_text(self, event: ModelTextDelta) -> None:
        turn, item_id = self._turn, event.item_id
        if item_id not in turn.open_items:
            self._on_started({"type": "message", "role": "assistant", "id": item_id})
        if self._finds_plans:
            for is_plan, text in self._splitter(item_id).feed(event.delta):
                self._publish_text(item_id, text, is_plan=is_plan)
            return
        self._texts.setdefault(item_id, []).append(event.delta)
        turn.log.publish(
            n.ITEM_AGENT_MESSAGE_DELTA,
            AgentMessageDeltaNotification(event.delta, item_id, turn.thread_id, turn.id),
        )

    @property
    def _plan_id(self) -> str:
        return f"{self._turn.id}-plan"

    def _splitter(self, item_id: str) -> PlanSplitter:
        return self._splitters.setdefault(item_id, PlanSplitter())

    def _publish_text(self, item_id: str, text: str, *, is_plan: bool) -> None:
        """Publish a delta of a message or of the plan inside it."""
        turn, plan_id = self._turn, self._plan_id
        if is_plan:
            if plan_id not in turn.open_items:
                self._texts[plan_id] = []
                turn.start_item(PlanThreadItem(plan_id, ""), self._plan_so_far)
            self._texts[plan_id].append(text)
            delta = PlanDeltaNotification(text, plan_id, turn.thread_id, turn.id)
            turn.log.publish(n.ITEM_PLAN_DELTA, delta)
        else:
            self._texts.setdefault(item_id, []).append(text)
            params = AgentMessageDeltaNotification(text, item_id, turn.thread_id, turn.id)
            turn.log.publish(n.ITEM_AGENT_MESSAGE_DELTA, params)

    def _plan_so_far(self) -> PlanThreadItem:
        return PlanThreadItem(self._plan_id, "".join(self._texts.get(self._plan_id, ())))

    def _on_reasoning(
        self, event: ReasoningSummaryDelta | ReasoningTextDelta | ReasoningPartAdded
    ) -> None:
        turn, item_id, index = self._turn, event.item_id, event.index
        if item_id not in turn.open_items:
            self._on_started({"type": "reasoning", "id": item_id})
        ids = (item_id, turn.thread_id, turn.id)
        if isinstance(event, ReasoningPartAdded):
            turn.log.publish(
                n.ITEM_REASONING_SUMMARY_PART_ADDED,
                ReasoningSummaryPartAddedNotification(item_id, index, turn.thread_id, turn.id),
            )
        elif isinstance(event, ReasoningSummaryDelta):
            _append(self._summaries, item_id, index, event.delta)
            turn.log.publish(
                n.ITEM_REASONING_SUMMARY_TEXT_DELTA,
                ReasoningSummaryTextDeltaNotification(
                    event.delta, item_id, index, turn.thread_id, turn.id
                ),
            )
        else:
            _append(self._reasoning, item_id, index, event.delta)
            turn.log.publish(
                n.ITEM_REASONING_TEXT_DELTA,
                ReasoningTextDeltaNotification(index, event.delta, *ids),
            )

    def _message_so_far(self, item: AgentMessageThreadItem) -> AgentMessageThreadItem:
        text = item.text + "".join(self._texts.get(item.id, ()))
        return AgentMessageThreadItem(id=item.id, text=text, phase="partial_answer")

    def _reasoning_so_far(self, item_id: str) -> ReasoningThreadItem:
        return ReasoningThreadItem(
            id=item_id,
            content=_join(self._reasoning.get(item_id, {})),
            summary=_join(self._summaries.get(item_id, {})),
        )


def _append(parts: dict[str, dict[int, list[str]]], item_id: str, index: int, text: str) -> None:
    parts.setdefault(item_id, {}).setdefault(index, []).append(text)


def _join(parts: dict[int, list[str]]) -> list[str]:
    return ["".join(parts[index]) for index in sorted(parts)]


def to_thread_item(item: ModelItem) -> ThreadItem | None:
    """Return the item as clients see it; `None` for calls, which their tools publish."""
    match item.get("type"):
        case "message" if item.get("role") == "assistant":
            phase = item.get("phase")
            return AgentMessageThreadItem(
                id=str(item["id"]),
                text=text_of(item),
                phase=phase if phase in _PHASES else None,
            )
        case "reasoning":
            return ReasoningThreadItem(
                id=str(item["id"]),
                content=_texts(item.get("content")),
                summary=_texts(item.get("summary")),
            )
        case "web_search_call":
            action = _web_search_action(item.get("action"))
            return WebSearchThreadItem(id=str(item["id"]), query=_query(action), action=action)
        case _:
            return None


def _token_count(item: ModelItem) -> int | None:
    """Return the tokens of a message, if the provider reports them."""
    metadata = item.get("internal_chat_message_metadata_passthrough")
    count = metadata.get("content_token_count") if isinstance(metadata, dict) else None
    if item.get("type") != "message" or not isinstance(count, int) or isinstance(count, bool):
        return None
    return count if 0 <= count < 1 << 53 else None


def text_of(item: ModelItem) -> str:
    """Return the plain text of a message."""
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "".join(_texts(content))


def _texts(parts: JsonValue) -> list[str]:
    if not isinstance(parts, list):
        return []
    return [str(part.get("text") or "") for part in parts if isinstance(part, dict)]


def _web_search_action(action: JsonValue) -> WebSearchAction:
    if not isinstance(action, dict):
        return OtherWebSearchAction()
    match action.get("type"):
        case "search":
            queries = action.get("queries")
            if isinstance(queries, list):
                queries = [each for each in queries if isinstance(each, str)]
            else:
                queries = None
            return SearchWebSearchAction(query=_text(action, "query"), queries=queries)
        case "open_page":
            return OpenPageWebSearchAction(url=_text(action, "url"))
        case "find_in_page":
            return FindInPageWebSearchAction(
                url=_text(action, "url"), pattern=_text(action, "pattern")
            )
        case _:
            return OtherWebSearchAction()


def _text(action: dict[str, JsonValue], name: str) -> str | None:
    value = action.get(name)
    return value if isinstance(value, str) else None


def _query(action: WebSearchAction) -> str:
    match action:
        case SearchWebSearchAction():
            return action.query or next(iter(action.queries or ()), "")
        case OpenPageWebSearchAction():
            return action.url or ""
        case FindInPageWebSearchAction():
            return action.pattern or action.url or ""
        case _:
            return ""
