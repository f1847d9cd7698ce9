"""The base instructions, and the texts that describe a thread's context to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from treadle.protocol.policy import (
    AskForApproval,
    DangerFullAccessSandboxPolicy,
    ExternalSandboxSandboxPolicy,
    GranularAskForApproval,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle.protocol.skill import SkillMetadata
    from treadle.sandbox.network.policy import NetworkPolicy

BASE_INSTRUCTIONS: Final = """\
You are a software engineer working on the user's machine, through a program that shows the user \
what you say and do as it happens.

How to work:
- Investigate before you act: read the relevant files, run the commands that provide evidence.
- Do everything that was requested, and nothing else. If the request is unclear and a wrong guess \
would be costly, ask; otherwise choose the sensible interpretation and state it.
- Make the smallest change that solves the problem at its root, in the style of the code around it.
- Check your work with the project's own tests and tools when there are any. Say plainly what you \
ran, what you saw, and what you did not check.
- Never invent output, files or results. If a tool fails, say so and try another way.
- Leave the user's own uncommitted changes alone. Do not commit or push unless you were asked to.

Tools:
- Prefer fast searches (`rg`, `git grep`) to reading everything.
- Run independent commands at the same time when you can.
- The sandbox or the user may deny a command. Accept a denial: change your plan, and do not try \
to work around it.
- For longer work, keep a short plan up to date if a planning tool is available.

Answers:
- Lead with the result. Be brief, concrete and honest; use lists and code blocks where they help.
- Name files by their path, with a line number where it matters.
"""

INTERRUPTED: Final = (
    "<turn_aborted>\nThe user interrupted the turn above. Commands and tools that were running "
    "may have done part of their work. Commands with a session ID may still be running.\n"
    "</turn_aborted>"
)
RESTARTED: Final = (
    "<turn_aborted>\nThe server was restarted during the turn above. Commands and tools that were "
    "running may have done part of their work.\n</turn_aborted>"
)

MAX_SKILLS: Final = 100
MAX_SKILL_CHARACTERS: Final = 1024

EXTERNAL: Final = "external_"
"""The prefix of the tag around untrusted context from a client."""

PLAN_MODE: Final = """\
You are in plan mode: work out a plan with the user, and change nothing yet. You stay in it until \
another developer message ends it, also if the user asks you to start.

1. Explore first. Read and search what the task touches; run commands that only inspect. \
Files cannot be written, and patches are refused.
2. Ask what you cannot find out and what changes the plan: goals, limits, a choice between \
designs. Use request_user_input for short questions with suggested answers, the recommended one \
first. Do not ask what the files can show you.
3. Propose the plan when no decision is left to the person or agent that carries it out: what \
changes and where, interfaces and data, edge cases, tests, and the assumptions that you made.

Write the complete plan in Markdown between <proposed_plan> and </proposed_plan>, each tag on a \
separate line, at most once per message. If the user wants changes, propose the complete plan \
again. Do not ask for permission to carry it out."""
DEFAULT_MODE: Final = """\
You are in default mode: do what the user requests. Earlier instructions about plan mode no longer \
apply."""

COMPACTION_REQUEST: Final = """\
The conversation is about to be truncated here to make room. Write a summary from which a \
colleague, who sees nothing else of it, can continue: what the user wants, what was decided and \
why, what has been done and verified, the remaining steps in order, and the relevant paths, names \
and commands. Be complete and brief; no greeting."""
COMPACTION_PREFIX: Final = (
    "The earlier part of this conversation was replaced by these notes, written when it grew too "
    "long:\n\n"
)


def _escape(text: str) -> str:
    # Not xml.sax.saxutils, which imports an HTTP client along with its three replacements.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_CHOSEN_HOSTS: Final = (
    "Network access goes through a proxy that environment variables name; do not change them. The "
    "proxy allows chosen hosts, asks the user about others if the policy permits, and returns 403 "
    "with the reason if a host is denied."
)


def permissions(
    sandbox: SandboxPolicy, approvals: AskForApproval, network: NetworkPolicy | None = None
) -> str:
    """Describe the sandbox and approval policies to the model."""
    parts = [_sandbox(sandbox)]
    if (
        network is not None
        and isinstance(sandbox, ReadOnlySandboxPolicy | WorkspaceWriteSandboxPolicy)
        and (network.is_required or sandbox.network_access)
    ):
        parts.append(_CHOSEN_HOSTS)
    parts.append(_approvals(approvals))
    return "\n".join(["<permissions instructions>", *parts, "</permissions instructions>"])


def _sandbox(policy: SandboxPolicy) -> str:
    if isinstance(policy, DangerFullAccessSandboxPolicy):
        return "Commands run without a sandbox, with the user's own permissions."
    if isinstance(policy, ExternalSandboxSandboxPolicy):
        # What the sandbox around the server allows is known to that sandbox alone.
        return "Commands have full access to the file system: this program enforces no sandbox."
    network = "may" if policy.network_access else "may not"
    if isinstance(policy, WorkspaceWriteSandboxPolicy):
        roots = ", ".join(policy.writable_roots)
        more = f" and {roots}" if roots else ""
        return (
            f"Commands run in a sandbox: they may read all files, write only below the working "
            f"folder{more}, and {network} use the network."
        )
    return (
        f"Commands run in a sandbox: they may read all files, write none, and {network} use the "
        "network."
    )


def _approvals(policy: AskForApproval) -> str:
    if isinstance(policy, GranularAskForApproval):
        return "The user is asked about some, but not all, commands that need more permissions."
    return {
        "never": "You cannot request more permissions: what the sandbox denies stays denied.",
        "on-request": "If a command needs more permissions, request them with the command.",
        "on-failure": "The user is asked when a command fails for lack of permissions.",
        "untrusted": "The user is asked before any command that is not known to be safe.",
    }[policy]


def environment(cwd: str, shell: str, date: str, timezone: str, network: str | None = None) -> str:
    """Describe the working folder, shell, date and, for an external sandbox, its network."""
    access = "" if network is None else f"  <network_access>{network}</network_access>\n"
    return (
        "<environment_context>\n"
        f"  <cwd>{_escape(cwd)}</cwd>\n"
        f"  <shell>{_escape(shell)}</shell>\n"
        f"  <current_date>{date}</current_date>\n"
        f"  <timezone>{_escape(timezone)}</timezone>\n"
        f"{access}"
        "</environment_context>"
    )


def project_docs(cwd: str, text: str) -> str:
    """Return the project's AGENTS.md text for the model."""
    return f"# AGENTS.md instructions for {cwd}\n\n<INSTRUCTIONS>\n{text}\n</INSTRUCTIONS>"


_ABOUT_SKILLS: Final = (
    "A skill is a file of instructions for one kind of task. When a task matches a skill below, or "
    "the user names it as `$name`, read its file first and follow it; paths in it are relative to "
    "its folder."
)
NO_SKILLS: Final = "<skills_instructions>\nNo skills are available.\n</skills_instructions>"


def skills(known: Sequence[SkillMetadata]) -> str | None:
    """List the skills for the model; `None` if there are none."""
    entries = [
        f"- {_escape(each.name)}: {_escape(each.description[:MAX_SKILL_CHARACTERS])} "
        f"(file: {_escape(each.path)})"
        for each in known
    ]
    if not entries:
        return None
    more = len(entries) - MAX_SKILLS
    rest = [f"- and {more} more in the same folders"] if more > 0 else []
    return "\n".join(
        [
            "<skills_instructions>",
            _ABOUT_SKILLS,
            *entries[:MAX_SKILLS],
            *rest,
            "</skills_instructions>",
        ]
    )


def skill(name: str, path: str, body: str) -> str:
    """Return a skill that the user selected for a message."""
    return f"<skill>\n<name>{name}</name>\n<path>{path}</path>\n{body}\n</skill>"


def goal(objective: str) -> str:
    """Describe the goal, for a turn that starts without user input."""
    return (
        "The thread has a goal. Keep working towards it; when it is reached or cannot be, report "
        f"that with the goal tool.\n<objective>\n{objective}\n</objective>"
    )


def model_switch(before: str, now: str) -> str:
    """Describe a change of the model during a conversation."""
    return (
        f"<model_switch>\nThe responses so far came from {before}. You, {now}, continue from here. "
        "Your own instructions take precedence over those that the conversation suggests.\n"
        "</model_switch>"
    )
