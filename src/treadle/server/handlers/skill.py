"""Skills that are visible from a folder, and whether they are enabled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from treadle.config.configuration import Configuration
from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import InvalidInput
from treadle.jsonrpc.errors import InvalidOptions
from treadle.protocol.client_requests import CLIENT_REQUESTS, SKILLS_CONFIG_WRITE, SKILLS_LIST
from treadle.protocol.skill import (
    SkillsConfigWriteParams,
    SkillsConfigWriteResponse,
    SkillsListEntry,
    SkillsListParams,
    SkillsListResponse,
)
from treadle.server.folders import check_folders
from treadle.server.handlers.config_write import answering_faults
from treadle.server.session import ClientSession
from treadle.server.sources.skills import configured_roots, configured_skills, switch_skill

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(SKILLS_LIST)
async def skills_list(ctx: Context[ClientSession], params: SkillsListParams) -> SkillsListResponse:
    """List the skills on disk, and notify the client of later changes.

    Nothing is cached, so `forceReload` has no effect.
    """
    configuration, workers = ctx.session.server.configuration, ctx.session.file_workers
    check_folders(params.cwds)
    extra = _extra_roots(params)
    cwds = params.cwds or [str(Path.cwd())]
    for at, cwd in enumerate(cwds):
        if "\0" in cwd:
            raise InvalidInput(f"cwds[{at}]", f"cwd {cwd!r} is not a path")
    # Watch first, so that a change during the listing is reported.
    for cwd in cwds:
        roots = await workers.run(configured_roots, configuration, cwd, extra.get(cwd, []))
        await ctx.session.server.skills_watch.cover(root.folder for root in roots)
    # Off the loop: a folder of skills can be large, or on a slow disk.
    entries = [await workers.run(_entry, configuration, cwd, extra.get(cwd, [])) for cwd in cwds]
    return SkillsListResponse(data=entries)


def _extra_roots(params: SkillsListParams) -> dict[str, list[Path]]:
    extra: dict[str, list[Path]] = {}
    entries = params.per_cwd_extra_user_roots or []
    check_folders([entry.cwd for entry in entries], "perCwdExtraUserRoots")
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


def _entry(configuration: Configuration, cwd: str, extra: Sequence[Path]) -> SkillsListEntry:
    skills = configured_skills(configuration, cwd, extra)
    return SkillsListEntry(cwd=cwd, skills=skills.entries, errors=skills.errors)


@router.request(SKILLS_CONFIG_WRITE)
async def skills_config_write(
    ctx: Context[ClientSession], params: SkillsConfigWriteParams
) -> SkillsConfigWriteResponse:
    """Enable or disable a skill permanently, whether or not it is on disk."""
    if (params.path is None) == (not params.name):
        raise InvalidOptions("skills/config/write requires exactly one of path or name")
    if params.path is not None and not Path(params.path).is_absolute():
        raise InvalidInput("path", f"path must be absolute: {params.path!r}")
    with answering_faults():
        await ctx.session.server.settings_workers.run(
            switch_skill,
            ctx.session.server.configuration,
            path=params.path,
            name=params.name or None,
            enabled=params.enabled,
        )
    return SkillsConfigWriteResponse(effective_enabled=params.enabled)
