"""Reports of users: saved as a ZIP file, and sent where an endpoint is configured."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final
from uuid import UUID

from treadle.config.effective import EffectiveConfig
from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import InvalidInput
from treadle.jsonrpc.errors import InternalError, InvalidRequest
from treadle.protocol.client_requests import CLIENT_REQUESTS, FEEDBACK_SAVE, FEEDBACK_UPLOAD
from treadle.protocol.feedback import (
    FeedbackSaveParams,
    FeedbackSaveResponse,
    FeedbackUploadParams,
    FeedbackUploadResponse,
)
from treadle.server.feedback.contents import configuration_attachment, logs_attachment
from treadle.server.feedback.report import (
    FeedbackAttachment,
    FeedbackReport,
    UnreadableAttachment,
    save,
    save_in_home,
)
from treadle.server.feedback.sending import NotSent, send
from treadle.server.session import ClientSession
from treadle.support.ids import uuid7

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

MAX_FILES: Final = 20
MAX_TAGS: Final = 64
MAX_WORD: Final = 1024
MAX_REASON: Final = 64 * 1024

logger = logging.getLogger(__name__)


@router.request(FEEDBACK_SAVE)
async def feedback_save(
    ctx: Context[ClientSession], params: FeedbackSaveParams
) -> FeedbackSaveResponse:
    """Save a report to a new file of the client's choice."""
    if not Path(params.save_path).is_absolute() or "\0" in params.save_path:
        # Upstream's text: its clients show it.
        raise InvalidInput("savePath", "feedback savePath must be an absolute host path")
    report = await _report(ctx, params)
    try:
        await ctx.session.file_workers.run(save, report, Path(params.save_path))
    except FileExistsError as error:
        message = "failed to save feedback: feedback save path already exists"
        raise InternalError(message, kind="fileExists") from error
    except (OSError, UnreadableAttachment) as error:
        raise InternalError(f"failed to save feedback: {error}") from error
    return FeedbackSaveResponse(params.save_path, report.thread_id)


@router.request(FEEDBACK_UPLOAD)
async def feedback_upload(
    ctx: Context[ClientSession], params: FeedbackUploadParams
) -> FeedbackUploadResponse:
    """Save a report below the home, and send it if an endpoint is configured."""
    server = ctx.session.server
    # Without a folder: settings of a project do not choose where reports go.
    effective = await ctx.session.file_workers.run(server.configuration.effective)
    settings = effective.feedback or {}
    if settings.get("enabled") is False or _is_forbidden(effective):
        # Upstream's text: its clients show it.
        raise InvalidRequest("sending feedback is disabled by configuration", kind="disabled")
    report = await _report(ctx, params)
    home = server.configuration.home
    endpoint = settings.get("endpoint")
    try:
        path = await ctx.session.file_workers.run(save_in_home, report, home)
        logger.info("feedback saved", extra={"path": str(path)})
    except (OSError, UnreadableAttachment) as error:
        raise InternalError(f"failed to upload feedback: {error}") from error
    if isinstance(endpoint, str):
        await _send(path, endpoint)
    return FeedbackUploadResponse(report.thread_id)


async def _send(path: Path, endpoint: str) -> None:
    try:
        await send(path, endpoint)
    except (NotSent, OSError) as error:
        message = f"failed to upload feedback: {error}; the report is {path}"
        raise InternalError(message, kind="notSent") from error


async def _report(
    ctx: Context[ClientSession], params: FeedbackSaveParams | FeedbackUploadParams
) -> FeedbackReport:
    _check(params)
    attachments = [
        FeedbackAttachment(Path(path).name, path=path) for path in params.extra_log_files or ()
    ]
    thread_id = f"no-active-thread-{uuid7()}"
    if params.thread_id is not None:
        thread_id = _uuid(params.thread_id)
        meta = await ctx.session.server.threads.stored.read_meta(thread_id)
        if params.include_logs and meta.path is not None:
            attachments.insert(0, FeedbackAttachment(Path(meta.path).name, path=meta.path))
    if params.include_logs:
        configuration = ctx.session.server.configuration
        described = await ctx.session.file_workers.run(configuration_attachment, configuration)
        attachments[:0] = [logs_attachment(), described]
    return FeedbackReport(
        classification=params.classification,
        thread_id=thread_id,
        reason=params.reason,
        tags=params.tags or {},
        attachments=attachments,
    )


def _check(params: FeedbackSaveParams | FeedbackUploadParams) -> None:
    """Refuse a report that is too large, and files that are named by a relative path."""
    tags = params.tags or {}
    files = params.extra_log_files or []
    if len(params.classification) > MAX_WORD:
        raise InvalidInput("classification", f"expected at most {MAX_WORD} characters")
    if len(params.reason or "") > MAX_REASON:
        raise InvalidInput("reason", f"expected at most {MAX_REASON} characters")
    if len(tags) > MAX_TAGS or any(len(each) > MAX_WORD for pair in tags.items() for each in pair):
        raise InvalidInput("tags", f"expected at most {MAX_TAGS} tags of {MAX_WORD} characters")
    if len(files) > MAX_FILES:
        raise InvalidInput("extraLogFiles", f"expected at most {MAX_FILES} files")
    for at, path in enumerate(files):
        if not Path(path).is_absolute() or "\0" in path:
            raise InvalidInput(f"extraLogFiles[{at}]", f"path must be absolute: {path!r}")


def _uuid(thread_id: str) -> str:
    try:
        return str(UUID(thread_id))
    except ValueError as error:
        raise InvalidInput("threadId", f"invalid thread id: {thread_id[:200]!r}") from error


def _is_forbidden(effective: EffectiveConfig) -> bool:
    requirements = effective.requirements
    feedback = None if requirements is None else requirements.feedback
    return feedback is not None and feedback.enabled is False
