"""Skills that are visible from a folder, and whether they are enabled."""

from __future__ import annotations

from pathlib import Path

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import InvalidInput
from treadle.jsonrpc.errors import InvalidOptions
from treadle.protocol.client_requests import (
    CLIENT_REQUESTS,
    SKILLS_CONFIG_WRITE,
    SKILLS_EXTRA_ROOTS_SET,
    SKILLS_LIST,
)
from treadle.protocol.skill import (
    SkillsConfigWriteParams,
    SkillsConfigWriteResponse,
    SkillsExtraRootsSetParams,
    SkillsExtraRootsSetResponse,
    SkillsListEntry,
    SkillsListParams,
    SkillsListResponse,
)
from treadle.server.folder_limits import MAX_FOLDERS, check_folders
from treadle.server.handlers.config_write import answering_faults
from treadle.server.session import ClientSession
from treadle.server.sources.skills import switch_skill
from treadle.support.files.working_folder import working_folder

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(SKILLS_LIST)
async def skills_list(ctx: Context[ClientSession], params: SkillsListParams) -> SkillsListResponse:
    """List the skills on disk, and notify the client of later changes.

    Nothing is cached, so `forceReload` has no effect.
    """
    skills, workers = ctx.session.server.skills, ctx.session.file_workers
    check_folders(params.cwds)
    extra = _extra_roots(params)
    cwds = params.cwds or [working_folder()]
    for at, cwd in enumerate(cwds):
        if "\0" in cwd:
            raise InvalidInput(f"cwds[{at}]", f"cwd {cwd!r} is not a path")
    for cwd in cwds:
        if cwd in extra or params.per_cwd_extra_user_roots is not None:
            skills.set_roots_of_folder(cwd, extra.get(cwd, []))
    # Watch first, so that a change during the listing is reported.
    for cwd in cwds:
        roots = await workers.run(skills.roots, cwd)
        await ctx.session.server.skills_watch.cover(root.folder for root in roots)
    # Off the loop: a folder of skills can be large, or on a slow disk.
    found = [(cwd, await workers.run(skills.find, cwd)) for cwd in cwds]
    return SkillsListResponse(
        data=[
            SkillsListEntry(cwd=cwd, skills=each.entries, errors=each.errors) for cwd, each in found
        ]
    )


@router.request(SKILLS_EXTRA_ROOTS_SET)
async def skills_extra_roots_set(
    ctx: Context[ClientSession], params: SkillsExtraRootsSetParams
) -> SkillsExtraRootsSetResponse:
    """Search more folders for skills until the server ends, and notify all clients."""
    check_folders(params.extra_roots, "extraRoots")
    for at, root in enumerate(params.extra_roots):
        if not Path(root).is_absolute() or "\0" in root:
            raise InvalidInput(f"extraRoots[{at}]", f"path must be absolute: {root!r}")
    server = ctx.session.server
    server.skills.set_extra_roots([Path(root) for root in params.extra_roots])
    ctx.after_reply(server.publish_skills_changed)
    await server.skills_watch.cover(Path(root) for root in params.extra_roots)
    return SkillsExtraRootsSetResponse()


def _extra_roots(params: SkillsListParams) -> dict[str, list[Path]]:
    extra: dict[str, list[Path]] = {}
    entries = params.per_cwd_extra_user_roots or []
    check_folders([entry.cwd for entry in entries], "perCwdExtraUserRoots")
    count = sum(len(entry.extra_user_roots) for entry in entries)
    if count > MAX_FOLDERS:
        message = f"perCwdExtraUserRoots must have at most {MAX_FOLDERS} folders, not {count}"
        raise InvalidInput("perCwdExtraUserRoots", message)
    for at, entry in enumerate(entries):
        check_folders(entry.extra_user_roots, f"perCwdExtraUserRoots[{at}].extraUserRoots")
        for root in entry.extra_user_roots:
            if not Path(root).is_absolute() or "\0" in root:
                raise InvalidInput(
                    f"perCwdExtraUserRoots[{at}].extraUserRoots",
                    "skills/list perCwdExtraUserRoots extraUserRoots paths must be absolute: "
                    f"{root}",
                )
            extra.setdefault(entry.cwd, []).append(Path(root))
    return extra


@router.request(SKILLS_CONFIG_WRITE)
async def skills_config_write(
    ctx: Context[ClientSession], params: SkillsConfigWriteParams
) -> SkillsConfigWriteResponse:
    """Enable or disable a skill permanently, whether or not it is on disk."""
    if (params.path is None) == (not params.name):
        raise InvalidOptions("skills/config/write requires exactly one of path or name")
    if params.path is not None and not Path(params.path).is_absolute():
        raise InvalidInput("path", f"path must be absolute: {params.path!r}")
    with answering_faults(ctx.session.server.configuration.home):
        await ctx.session.server.settings_workers.run(
            switch_skill,
            ctx.session.server.configuration,
            path=params.path,
            name=params.name or None,
            enabled=params.enabled,
        )
    return SkillsConfigWriteResponse(effective_enabled=params.enabled)
