"""What the logs show of a turn: one line at its start and end, and its steps at debug level.

Texts of users, models and tools are not logged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.engine.settings import RunSettings
    from treadle.engine.turn import ActiveTurn
    from treadle.model.base import Completed, ModelRequest
    from treadle.model.retry import Retry
    from treadle.protocol.item import ThreadItem

logger = logging.getLogger(__name__)


def ids_of(turn: ActiveTurn, item_id: str | None = None) -> dict[str, str]:
    """Return the ids that each line of a turn has."""
    ids = {"thread_id": turn.thread_id, "turn_id": turn.id}
    return ids if item_id is None else {**ids, "item_id": item_id}


def log_start(turn: ActiveTurn, settings: RunSettings) -> None:
    """Log that a turn starts."""
    about = {
        "kind": turn.kind,
        "model": settings.model,
        "provider": settings.model_provider,
        "service": settings.service_name,
    }
    logger.info("turn started", extra={**ids_of(turn), **about})


def log_end(turn: ActiveTurn, settings: RunSettings) -> None:
    """Log how a turn ended."""
    about = {
        "status": turn.state,
        "duration_ms": turn.duration_ms,
        "error": None if turn.error is None else str(turn.error.codex_error_info),
        "service": settings.service_name,
    }
    logger.info("turn ended", extra={**ids_of(turn), **about})


def log_request(turn: ActiveTurn, request: ModelRequest) -> None:
    """Log a request to the model."""
    about = {"model": request.model, "items": len(request.input), "tools": len(request.tools)}
    logger.debug("model requested", extra={**ids_of(turn), **about})


def log_response(turn: ActiveTurn, completed: Completed) -> None:
    """Log the end of a response."""
    tokens = completed.usage.total_tokens if completed.usage is not None else None
    about = {"response_id": completed.response_id, "tokens": tokens}
    logger.debug("model responded", extra={**ids_of(turn), **about})


def log_retry(turn: ActiveTurn, retry: Retry) -> None:
    """Log that a request to the model is repeated."""
    about = {
        "attempt": retry.attempt,
        "of": retry.max,
        "delay_s": round(retry.delay_s, 3),
        "status": retry.error.http_status,
        "info": str(retry.error.info),
    }
    logger.debug("model is retried", extra={**ids_of(turn), **about})


def log_item(text: str, turn: ActiveTurn, item: ThreadItem) -> None:
    """Log a step of an item."""
    about = {"type": type(item).__struct_config__.tag}
    logger.debug(text, extra={**ids_of(turn, item.id), **about})


def log_tool(text: str, turn: ActiveTurn, call_id: str, tool: str) -> None:
    """Log a step of a tool call."""
    logger.debug(text, extra={**ids_of(turn, call_id), "tool": tool})
