"""Skills that a working directory sees."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.engine.errors import InvalidInput
from treadle.engine.skills import Disabled, find_skills, skill_roots
from treadle.protocol.base import JsonValue
from treadle.protocol.client_requests import CLIENT_REQUESTS, SKILLS_LIST
from treadle.protocol.skill import SkillsListEntry, SkillsListParams, SkillsListResponse
from treadle.server.config_file import ConfigError
from treadle.server.configuration.configuration import Configuration
from treadle.server.session import ClientSession

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(SKILLS_LIST)
async def skills_list(ctx: Context[ClientSession], params: SkillsListParams) -> SkillsListResponse:
    """List them as they are on disk now; nothing is kept, so `forceReload` has nothing to do."""
    configuration = ctx.session.server.configuration
    extra = _extra_roots(params)
    cwds = params.cwds or [str(Path.cwd())]
    for at, cwd in enumerate(cwds):
        if "\0" in cwd:
            raise InvalidInput(f"cwds[{at}]", f"cwd {cwd!r} is not a path")
    # Off the loop: a folder of skills can be large, or on a slow disk.
    found = [
        await asyncio.to_thread(_entry, configuration, cwd, extra.get(cwd, [])) for cwd in cwds
    ]
    return SkillsListResponse(data=found)


def _extra_roots(params: SkillsListParams) -> dict[str, list[Path]]:
    extra: dict[str, list[Path]] = {}
    for at, entry in enumerate(params.per_cwd_extra_user_roots or []):
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
    home = configuration.environ.get("HOME")
    roots = skill_roots(
        Path.cwd() / cwd,
        home=configuration.home,
        user_home=Path(home) if home else None,
        extra=extra,
    )
    skills = find_skills(roots, _disabled(configuration, cwd))
    return SkillsListEntry(cwd=cwd, skills=skills.found, errors=skills.errors)


def _disabled(configuration: Configuration, cwd: str) -> Disabled:
    """What `[[skills.config]]` switches off; of two entries for one skill the later one holds."""
    try:
        table = configuration.effective(cwd).skills or {}
    except ConfigError:
        table = configuration.lenient().skills or {}
    rules = table.get("config")
    by_path: dict[str, JsonValue] = {}
    by_name: dict[str, JsonValue] = {}
    for rule in rules if isinstance(rules, list) else []:
        if not isinstance(rule, dict):
            continue
        path, name = rule.get("path"), rule.get("name")
        if isinstance(path, str):
            by_path[str(Path(path).resolve())] = rule.get("enabled")
        elif isinstance(name, str):
            by_name[name] = rule.get("enabled")
    return Disabled(_off(by_path), _off(by_name))


def _off(rules: dict[str, JsonValue]) -> frozenset[str]:
    return frozenset(key for key, is_on in rules.items() if is_on is False)
