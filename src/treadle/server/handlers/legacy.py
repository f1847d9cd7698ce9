"""Requests of the first protocol that clients still send."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.project.confined_git import ConfinedGit, GitUnavailable
from treadle.jsonrpc.errors import InternalError, InvalidRequest
from treadle.protocol.legacy import (
    GET_CONVERSATION_SUMMARY,
    GIT_DIFF_TO_REMOTE,
    LEGACY_REQUESTS,
    ConversationGitInfo,
    ConversationSummary,
    GetConversationSummaryParams,
    GetConversationSummaryResponse,
    GitDiffToRemoteParams,
    GitDiffToRemoteResponse,
    LegacySessionSource,
)
from treadle.server.errors import unknown_thread
from treadle.server.folder_limits import check_folder
from treadle.server.session import ClientSession
from treadle.server.thread_settings import working_folder
from treadle.store.journal import ThreadNotFound
from treadle.store.rollout.format import write_source
from treadle.store.stored_thread import ThreadMeta

router: Router[ClientSession] = Router(LEGACY_REQUESTS)


@router.request(GET_CONVERSATION_SUMMARY)
async def get_conversation_summary(
    ctx: Context[ClientSession], params: GetConversationSummaryParams
) -> GetConversationSummaryResponse:
    """Return what a list shows of one stored thread."""
    store = ctx.session.server.threads.store
    try:
        if params.conversation_id is not None:
            read = partial(store.read, params.conversation_id, turns=False)
        else:
            path = Path(store.home, params.rollout_path or "")
            check_folder(str(path), "rolloutPath")
            read = partial(store.read_path, str(path), turns=False)
        stored = await store.run(read)
    except ThreadNotFound as error:
        raise unknown_thread("no rollout found for conversation id", error.thread) from error
    return GetConversationSummaryResponse(_summary(stored.meta))


def _summary(meta: ThreadMeta) -> ConversationSummary:
    git = meta.git_info
    return ConversationSummary(
        conversation_id=meta.id,
        path=meta.path or "",
        preview=meta.preview,
        model_provider=meta.model_provider,
        cwd=meta.cwd,
        cli_version=meta.cli_version,
        source=msgspec.convert(write_source(meta.source), LegacySessionSource),
        timestamp=_text(meta.created_at),
        updated_at=_text(meta.updated_at),
        git_info=None
        if git is None
        else ConversationGitInfo(sha=git.sha, branch=git.branch, origin_url=git.origin_url),
    )


def _text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


@router.request(GIT_DIFF_TO_REMOTE)
async def git_diff_to_remote(
    ctx: Context[ClientSession], params: GitDiffToRemoteParams
) -> GitDiffToRemoteResponse:
    """Compare a folder's working tree with its closest commit on a remote."""
    from treadle.engine.project.remote_diff import DiffTooLarge, diff_to_remote

    check_folder(params.cwd)
    cwd = working_folder(params.cwd)
    server, workers = ctx.session.server, ctx.session.file_workers
    services = server.threads.services
    services.prepare_sandbox()
    effective = await workers.run(server.configuration.effective, cwd)
    git = ConfinedGit(services.sandbox, services.boundary, cwd, effective.command_limits())
    message = f"failed to compute git diff to remote for cwd: {msgspec.json.encode(cwd).decode()}"
    try:
        found = await diff_to_remote(git, workers)
    except GitUnavailable as error:
        raise InternalError(f"{message}: {error}", kind="sandboxUnavailable") from error
    except (OSError, TimeoutError, ValueError, DiffTooLarge) as error:
        raise InvalidRequest(f"{message}: {error}") from error
    if found is None:
        raise InvalidRequest(message)
    return GitDiffToRemoteResponse(sha=found.commit, diff=found.text)
