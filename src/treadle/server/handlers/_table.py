"""The file that handles each method.

Generated from the decorators of the handlers by `make generate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

RESOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "account": (
        "account/bedrock/checkGovCloudRequirements",
        "account/login/cancel",
        "account/login/start",
        "account/logout",
        "account/rateLimits/read",
        "account/read",
        "account/usage/read",
        "account/workspaceMessages/read",
        "getAuthStatus",
    ),
    "collaboration": ("collaborationMode/list",),
    "command": (
        "command/exec",
        "command/exec/resize",
        "command/exec/terminate",
        "command/exec/write",
    ),
    "config": (
        "config/read",
        "configRequirements/read",
        "experimentalFeature/enablement/set",
        "experimentalFeature/list",
        "hooks/list",
        "permissionProfile/list",
    ),
    "config_write": ("config/batchWrite", "config/value/write"),
    "feature": ("mock/experimentalMethod",),
    "fs": (
        "fs/copy",
        "fs/createDirectory",
        "fs/getMetadata",
        "fs/readDirectory",
        "fs/readFile",
        "fs/remove",
        "fs/unwatch",
        "fs/watch",
        "fs/writeFile",
    ),
    "fuzzy_file_search": (
        "fuzzyFileSearch",
        "fuzzyFileSearch/sessionStart",
        "fuzzyFileSearch/sessionStop",
        "fuzzyFileSearch/sessionUpdate",
    ),
    "goal": ("thread/goal/clear", "thread/goal/get", "thread/goal/set"),
    "history": (
        "thread/items/list",
        "thread/items/read",
        "thread/search",
        "thread/searchOccurrences",
        "thread/turns/list",
    ),
    "initialize": ("initialize",),
    "legacy": ("getConversationSummary", "gitDiffToRemote"),
    "mcp": (
        "config/mcpServer/reload",
        "mcpServer/event/stream/start",
        "mcpServer/event/stream/stop",
        "mcpServer/oauth/login",
        "mcpServer/resource/read",
        "mcpServer/tool/call",
        "mcpServerStatus/list",
    ),
    "model": ("model/list",),
    "model_provider": ("modelProvider/config/write", "modelProvider/list"),
    "process": ("process/kill", "process/resizePty", "process/spawn", "process/writeStdin"),
    "review": ("review/start", "thread/approveGuardianDeniedAction"),
    "sample": ("thread/sample", "thread/sample/cancel"),
    "settings": ("thread/revert", "thread/rollback", "thread/settings/update"),
    "skill": ("skills/config/write", "skills/extraRoots/set", "skills/list"),
    "terminal": (
        "thread/backgroundTerminals/clean",
        "thread/backgroundTerminals/list",
        "thread/backgroundTerminals/terminate",
        "thread/shellCommand",
    ),
    "thread": ("thread/fork", "thread/resume", "thread/start"),
    "thread_manage": (
        "thread/archive",
        "thread/compact/start",
        "thread/delete",
        "thread/inject_items",
        "thread/list",
        "thread/loaded/list",
        "thread/metadata/update",
        "thread/name/set",
        "thread/read",
        "thread/unarchive",
        "thread/unsubscribe",
    ),
    "turn": ("turn/interrupt", "turn/settings/update", "turn/start", "turn/steer"),
}
