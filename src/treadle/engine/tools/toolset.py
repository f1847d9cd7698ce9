"""Assembles the tools of a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.engine.tools.agents import agent_tools
from treadle.engine.tools.ask_user import RequestUserInput
from treadle.engine.tools.dynamic import dynamic_tools
from treadle.engine.tools.goal import goal_tools
from treadle.engine.tools.image import ViewImage
from treadle.engine.tools.mcp import mcp_tools
from treadle.engine.tools.patch import ApplyPatch
from treadle.engine.tools.permissions import FEATURE as REQUEST_PERMISSIONS
from treadle.engine.tools.permissions import RequestPermissions
from treadle.engine.tools.plan import UpdatePlan
from treadle.engine.tools.registry import ToolHandler, ToolRegistry
from treadle.engine.tools.search import WebSearch, mode_of
from treadle.engine.tools.shell import command_tools
from treadle.engine.tools.tool_search import ToolFinder, defer_mcp_tools

if TYPE_CHECKING:
    from treadle.engine.agents.agents import Agents
    from treadle.engine.thread import LoadedThread


def tools_of(thread: LoadedThread, agents: Agents) -> list[ToolHandler]:
    """The fixed tools of a thread, in the order in which the model sees them."""
    return [
        *command_tools(thread),
        ApplyPatch(thread),
        UpdatePlan(thread),
        *(goal_tools(thread) if thread.settings.is_enabled("goals") else ()),
        RequestUserInput(thread),
        *([ViewImage(thread)] if thread.settings.is_enabled("view_image") else ()),
        *agent_tools(thread, agents),
    ]


def changing_tools_of(thread: LoadedThread) -> list[ToolHandler]:
    """The tools that depend on the settings, the clients and the MCP servers of a thread."""
    tools: list[ToolHandler] = []
    if thread.settings.is_enabled(REQUEST_PERMISSIONS):
        tools.append(RequestPermissions(thread))
    tools += dynamic_tools(thread)
    tools += defer_mcp_tools(thread, mcp_tools(thread))
    if mode_of(thread.settings) != "disabled":
        tools.append(WebSearch(thread))
    return tools


def toolbox_of(thread: LoadedThread, agents: Agents) -> ToolRegistry:
    """The registry of a thread's tools, with the search for deferred ones."""
    return ToolRegistry(
        lambda: tools_of(thread, agents),
        changing=lambda: changing_tools_of(thread),
        arriving=thread.mcp.arriving,
        finder=ToolFinder(thread),
    )
