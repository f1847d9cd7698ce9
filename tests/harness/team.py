"""A model that plays an agent and its sub-agents, and filters for their notifications."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.harness.threads import params_of
from treadle.model.base import ModelRequest
from treadle.model.scripted.model import ScriptedModel, calls
from treadle.model.scripted.script import Response
from treadle.protocol.base import JsonValue

TOOLS = ["spawn_agent", "send_input", "resume_agent", "wait_agent", "close_agent"]
TASK: JsonValue = {"message": "look"}


class Team:
    """A model that is a parent and its children, each with its own script."""

    def __init__(self) -> None:
        self.parent: list[Callable[[str], Response]] = []
        self.children: list[Response] = []
        # What a child does, where that depends on which one it is.
        self.child: Callable[[ModelRequest], Response] = lambda _request: "child done"
        self.model = ScriptedModel(self.play)
        self.child_id = ""

    def play(self, request: ModelRequest) -> Response:
        """Play the next step of the agent that sends the request."""
        if request.subagent == "collab_spawn":
            return self.children.pop(0) if self.children else self.child(request)
        for output in self.outputs(request):
            self.child_id = output.get("agent_id", self.child_id)
        return self.parent.pop(0)(self.child_id) if self.parent else "parent done"

    def plays(self, *steps: Response | Callable[[str], Response]) -> None:
        """Let the parent do this; a function is given the id of the last child."""
        self.parent = [_as_function(step) for step in steps]

    @staticmethod
    def outputs(request: ModelRequest) -> list[dict[str, JsonValue]]:
        """The JSON outputs of tools in a request."""
        texts = [item["output"] for item in request.input if "output" in item]
        return [json.loads(text) for text in texts if text.startswith("{")]

    def last_output(self) -> str:
        """The last tool output that the parent received."""
        asked = [request for request in self.model.requests if request.subagent is None]
        return str([item for item in asked[-1].input if "output" in item][-1]["output"])


def _as_function(step: Response | Callable[[str], Response]) -> Callable[[str], Response]:
    def play(_child_id: str) -> Response:
        assert not callable(step)
        return step

    return step if callable(step) else play


def spawn(**arguments: JsonValue) -> Response:
    """Spawn an agent."""
    return calls("spawn_agent", {"message": "look", **arguments}, call_id="spawn")


def wait(child_id: str) -> Response:
    """Wait for an agent."""
    return calls("wait_agent", {"targets": [child_id]}, call_id="wait")


def close(child_id: str) -> Response:
    """Close an agent."""
    return calls("close_agent", {"target": child_id}, call_id="close")


def of(messages: list[JsonValue], thread_id: str) -> list[JsonValue]:
    """The messages of one thread."""
    return [message for message in messages if message["params"].get("threadId") == thread_id]


def deeds(messages: list[JsonValue]) -> list[JsonValue]:
    """The completed calls of agent tools."""
    done = (params["item"] for params in params_of(messages, "item/completed"))
    return [item for item in done if item["type"] == "collabAgentToolCall"]


def is_over(thread_id: str) -> Callable[[JsonValue], bool]:
    """A condition for notifications of one thread."""
    return lambda params: params["threadId"] == thread_id


def is_unloaded(thread_id: str) -> Callable[[JsonValue], bool]:
    """A condition for the unloading of a thread."""
    return lambda params: params == {"threadId": thread_id, "status": {"type": "notLoaded"}}


def more(child_id: str) -> Response:
    """Send more input to an agent."""
    return calls("send_input", {"target": child_id, "message": "more"}, call_id="send")


def resume(child_id: str) -> Response:
    """Open an agent again."""
    return calls("resume_agent", {"id": child_id}, call_id="resume")
