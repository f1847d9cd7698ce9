"""Reads `agents/openai.yaml` of a skill: how it is displayed, what it needs, and who may use it.

The file is optional: a fault in it is logged, and the skill loads without it. An invalid value is
left out, and the others count.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from treadle.protocol.skill import SkillDependencies, SkillInterface, SkillToolDependency
from treadle.sandbox.reading import read_for_model
from treadle.support.text.yaml_subset import BadYaml, YamlValue, read_yaml

FILE: Final = Path("agents", "openai.yaml")
ASSETS: Final = "assets"
MAX_BYTES: Final = 64 * 1024
MAX_SHORT: Final = 64
MAX_LONG: Final = 1024
MAX_TOOLS: Final = 100
PRODUCT: Final = "codex"
"""What a skill for chosen products must name to be used here."""

_COLOR: Final = re.compile(r"#[0-9a-fA-F]{6}")

logger = logging.getLogger(__name__)


class SkillDetails(NamedTuple):
    """What the optional file says; the defaults apply without it."""

    interface: SkillInterface | None = None
    dependencies: SkillDependencies | None = None
    is_for_model: bool = True
    """Whether the model may choose the skill by itself; a user may in any case."""
    is_for_product: bool = True


def read_skill_details(folder: Path, plugin: Path | None = None) -> SkillDetails:
    """Read the file of a skill's folder; a skill of a plugin may use the plugin's icons."""
    path = str(folder / FILE)
    try:
        # The path has no links, unless a command has just put one there.
        data, size = read_for_model(path, MAX_BYTES, lambda place: place == path)
    except (FileNotFoundError, NotADirectoryError):
        return SkillDetails()
    except OSError as error:
        return _ignored(path, error.strerror or str(error))
    if size > MAX_BYTES:
        return _ignored(path, f"larger than {MAX_BYTES} bytes")
    try:
        parsed = read_yaml(data.decode())
    except (BadYaml, UnicodeDecodeError) as error:
        return _ignored(path, str(error))
    table = parsed if isinstance(parsed, dict) else {}
    policy = _table(table, "policy")
    products = policy.get("products")
    return SkillDetails(
        interface=_interface(_table(table, "interface"), folder, plugin),
        dependencies=_dependencies(_table(table, "dependencies")),
        is_for_model=policy.get("allow_implicit_invocation") not in ("false", "False", "FALSE"),
        is_for_product=not products or not isinstance(products, list) or PRODUCT in products,
    )


def _ignored(path: str, reason: str) -> SkillDetails:
    logger.warning("metadata of a skill ignored", extra={"path": path, "reason": reason})
    return SkillDetails()


def _table(table: Mapping[str, YamlValue], name: str) -> Mapping[str, YamlValue]:
    value = table.get(name)
    return value if isinstance(value, dict) else {}


def _text(table: Mapping[str, YamlValue], name: str, limit: int) -> str | None:
    value = table.get(name)
    if not isinstance(value, str):
        return None
    text = " ".join(value.split())
    return text if 0 < len(text) <= limit else None


def _interface(
    table: Mapping[str, YamlValue], folder: Path, plugin: Path | None
) -> SkillInterface | None:
    color = _text(table, "brand_color", MAX_SHORT)
    interface = SkillInterface(
        brand_color=color if color and _COLOR.fullmatch(color) else None,
        default_prompt=_text(table, "default_prompt", MAX_LONG),
        display_name=_text(table, "display_name", MAX_SHORT),
        icon_large=_icon(table.get("icon_large"), folder, plugin),
        icon_small=_icon(table.get("icon_small"), folder, plugin),
        short_description=_text(table, "short_description", MAX_LONG),
    )
    has_any = any(getattr(interface, name) is not None for name in interface.__struct_fields__)
    return interface if has_any else None


def _icon(path: YamlValue, folder: Path, plugin: Path | None) -> str | None:
    """Return the path of an icon below the skill's assets, or below those of its plugin."""
    if not isinstance(path, str) or not path or "\0" in path or len(path) > MAX_LONG:
        return None
    if path.startswith("/"):
        return None
    named = os.path.normpath(folder / path)
    roots = [folder / ASSETS, *([plugin / ASSETS] if plugin is not None else [])]
    # Without links as well: the icon is a file that the client opens.
    is_inside = any(_is_below(named, str(root)) for root in roots) and any(
        _is_below(os.path.realpath(named), os.path.realpath(root)) for root in roots
    )
    return named if is_inside else None


def _is_below(path: str, root: str) -> bool:
    return path.startswith(f"{root.rstrip('/')}/")


def _dependencies(table: Mapping[str, YamlValue]) -> SkillDependencies | None:
    entries = table.get("tools")
    if not isinstance(entries, list):
        return None
    tools = [tool for entry in entries[:MAX_TOOLS] if (tool := _tool(entry)) is not None]
    return SkillDependencies(tools) if tools else None


def _tool(entry: YamlValue) -> SkillToolDependency | None:
    if not isinstance(entry, dict):
        return None
    kind, value = _text(entry, "type", MAX_SHORT), _text(entry, "value", MAX_LONG)
    if kind is None or value is None:
        return None
    return SkillToolDependency(
        type=kind,
        value=value,
        command=_text(entry, "command", MAX_LONG),
        description=_text(entry, "description", MAX_LONG),
        transport=_text(entry, "transport", MAX_SHORT),
        url=_text(entry, "url", MAX_LONG),
    )
