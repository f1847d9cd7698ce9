r"""The format of rollout files: their lines, their first line, and the repair of damaged lines.

The choice of lines follows experiments with the reference binaries 0.118.0 and 0.163.0 on files
that another program wrote:

- Both skip unknown line types, unknown `event_msg` types, and unknown keys of a line and its
  payload. Our own data therefore goes into the top-level key `treadle`.
- Both list "legacy" lines (`session_meta` without `history_mode`; `user_message`,
  `agent_message`, ...), read them with turns and resume them with all history. We write these.
- 0.118.0 does not list "paginated" lines (`history_mode`, `ordinal`, `item_completed`), and
  0.163.0 shows their turns only after it has resumed them. Each line needs an `ordinal`, or
  0.163.0 refuses to resume. We write these only after lines of 0.163.0.
- 0.163.0 shows commands only from paginated lines, so none of a legacy file, not even one of
  0.118.0. With both kinds of lines in one file, both would show all items; but 0.163.0 would show
  no turn before it has resumed them, and a continuation by 0.118.0 would break that.
- `response_item`, `compacted` and `thread_rolled_back` form the model context in both.
- A turn without an end counts as interrupted; `task_complete` with `error` as failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from treadle.protocol.base import GitInfo, JsonValue
from treadle.protocol.source import SessionSource
from treadle.protocol.tool import DynamicToolSpec
from treadle.store.journal import ThreadCorrupt
from treadle.store.records import AnyRecord
from treadle.store.stored_thread import ThreadMeta
from treadle.support.text.json_text import MAX_NESTING, is_nested_deeper, repair_json

NULL: Final = Raw(b"null")
# The deepest value that a client may send, plus what a line adds around it.
MAX_LINE_NESTING: Final = 2 * MAX_NESTING
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class OwnEvent(Struct, frozen=True, tag_field="record", tag="event"):
    """An event in our own form: exactly as it was published."""

    seq: int
    at_ms: int
    method: str
    params: Raw


class Copy(Struct, frozen=True, tag_field="record", tag="copy"):
    """Marks a line for other programs; another line has the same content for us."""


class OwnMeta(Struct, frozen=True, tag_field="record", tag="meta", omit_defaults=True):
    """What our first line adds for ourselves."""

    developer_instructions: str | None = None
    dynamic_tools: list[DynamicToolSpec] | None = None
    extra: dict[str, JsonValue] | None = None
    project_id: str | None = None
    attached_to_id: str | None = None


Mark: TypeAlias = OwnEvent | Copy | OwnMeta | AnyRecord


class RolloutLine(Struct, frozen=True):
    """One line of a rollout file; with a mark it is ours, and the payload is for other programs."""

    type: str
    timestamp: str = ""
    payload: Raw = NULL
    ordinal: int | None = None
    treadle: Mark | UnsetType = UNSET


_lines: Final = msgspec.json.Decoder(RolloutLine)


def decode_line(piece: bytes) -> RolloutLine | None:
    """Decode one line, or return `None` if it is invalid."""
    if is_nested_deeper(piece, MAX_LINE_NESTING):
        return None
    try:
        return _lines.decode(piece)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return _lines.decode(repair_json(piece.removeprefix(_BYTE_ORDER_MARK)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def parse_time(text: str) -> int | None:
    """Return a line's timestamp in milliseconds."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def format_time(ms: int) -> str:
    """Format a time as rollout lines do: UTC, with milliseconds."""
    moment = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


class _Git(Struct, omit_defaults=True):
    commit_hash: str | None = None
    branch: str | None = None
    repository_url: str | None = None


class _Instructions(Struct, frozen=True):
    text: str = ""


class HistoryBase(Struct, frozen=True):
    """The start of a thread's history: a thread's file, up to an offset."""

    thread_id: str
    end_ordinal_exclusive: int
    end_byte_offset: int


class SessionMeta(Struct, omit_defaults=True):
    """The known part of the payload of the first line."""

    id: str
    timestamp: str = ""
    cwd: str = ""
    originator: str | None = None
    cli_version: str = ""
    source: JsonValue = None
    thread_source: str | None = None
    model_provider: str | None = None
    base_instructions: _Instructions | None = None
    session_id: str | None = None
    forked_from_id: str | None = None
    parent_thread_id: str | None = None
    agent_nickname: str | None = None
    agent_role: str | None = None
    history_mode: str | None = None
    history_base: HistoryBase | None = None
    dynamic_tools: JsonValue = None
    git: _Git | None = None
    creator_user_id: str | None = None
    creator_account_id: str | None = None


_metas: Final = msgspec.json.Decoder(SessionMeta)


def session_meta(line: RolloutLine | None, path: Path) -> SessionMeta:
    """Read the first line of a file.

    Raises:
        ThreadCorrupt: it is not a valid first line.
    """
    if line is None or line.type != "session_meta":
        raise ThreadCorrupt(str(path), "no session_meta line")
    try:
        return _metas.decode(line.payload)
    except msgspec.DecodeError as error:
        raise ThreadCorrupt(str(path), f"bad session_meta line: {error}") from error


def to_meta(session: SessionMeta, line: RolloutLine, path: Path) -> ThreadMeta:
    """Return a thread's metadata from the first line; later lines add the rest."""
    created = parse_time(session.timestamp) or parse_time(line.timestamp) or 0
    own = line.treadle if isinstance(line.treadle, OwnMeta) else OwnMeta()
    instructions = session.base_instructions
    return ThreadMeta(
        id=session.id,
        session_id=session.session_id or session.id,
        created_at=created // 1000,
        updated_at=created // 1000,
        cwd=session.cwd,
        model_provider=session.model_provider or "openai",
        source=read_source(session.source),
        originator=session.originator,
        cli_version=session.cli_version,
        git_info=_read_git(session.git),
        forked_from_id=session.forked_from_id,
        parent_thread_id=session.parent_thread_id,
        thread_source=session.thread_source,
        path=str(path),
        project_id=own.project_id,
        agent_nickname=session.agent_nickname,
        agent_role=session.agent_role,
        history_mode="paginated" if session.history_mode == "paginated" else "legacy",
        base_instructions=None if instructions is None else instructions.text,
        developer_instructions=own.developer_instructions,
        dynamic_tools=own.dynamic_tools or _read_tools(session.dynamic_tools),
        extra=own.extra,
        attached_to_id=own.attached_to_id,
        creator_user_id=session.creator_user_id,
        creator_account_id=session.creator_account_id,
    )


def _read_git(git: _Git | None) -> GitInfo | None:
    if git is None:
        return None
    return GitInfo(sha=git.commit_hash, branch=git.branch, origin_url=git.repository_url)


def from_meta(meta: ThreadMeta, created_ms: int) -> tuple[SessionMeta, OwnMeta]:
    """Return the payload of a first line, and our additions to it."""
    git = meta.git_info
    session = SessionMeta(
        id=meta.id,
        timestamp=format_time(created_ms),
        cwd=meta.cwd,
        originator=meta.originator,
        cli_version=meta.cli_version,
        source=write_source(meta.source),
        thread_source=meta.thread_source,
        model_provider=meta.model_provider,
        base_instructions=_Instructions(meta.base_instructions or ""),
        session_id=meta.session_id,
        forked_from_id=meta.forked_from_id,
        parent_thread_id=meta.parent_thread_id,
        agent_nickname=meta.agent_nickname,
        agent_role=meta.agent_role,
        git=None if git is None else _Git(git.sha, git.branch, git.origin_url),
        creator_user_id=meta.creator_user_id,
        creator_account_id=meta.creator_account_id,
    )
    own = OwnMeta(
        developer_instructions=meta.developer_instructions,
        dynamic_tools=meta.dynamic_tools,
        extra=meta.extra,
        project_id=meta.project_id,
        attached_to_id=meta.attached_to_id,
    )
    return session, own


def read_source(value: JsonValue) -> SessionSource:
    """Translate the source in a file to the protocol's; anything else is `unknown`."""
    if value is None:
        return "vscode"
    if isinstance(value, Mapping) and "subagent" in value:
        value = {"subAgent": value["subagent"]}
    elif value == "mcp":
        value = "appServer"
    try:
        source: SessionSource = msgspec.convert(value, SessionSource)
    except msgspec.ValidationError:
        return "unknown"
    return source


def write_source(source: SessionSource) -> JsonValue:
    """Translate a source to what files contain."""
    value = msgspec.to_builtins(source)
    if isinstance(value, dict) and "subAgent" in value:
        return {"subagent": value["subAgent"]}
    return "mcp" if value == "appServer" else value


def _read_tools(value: JsonValue) -> list[DynamicToolSpec] | None:
    if not isinstance(value, list):
        return None
    # 0.118.0 wrote no type: it had only one.
    tagged = [{"type": "function", **tool} for tool in value if isinstance(tool, dict)]
    try:
        return msgspec.convert(tagged, list[DynamicToolSpec])
    except msgspec.ValidationError:
        return None
