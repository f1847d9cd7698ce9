"""The TypeScript types: their layout and names, and that the real compiler accepts them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from treadle.protocol.export import export_typescript, typescript_files

HEADER = "// Generated from the protocol's structs: changes made here are lost.\n\n"

USE = """
import type { ClientRequest, ServerNotification, SleepItem, v2 } from "./index";

export const start: ClientRequest = {
  method: "turn/start",
  id: 1,
  params: { threadId: "t", input: [{ type: "text", text: "hi", text_elements: [] }] },
};
export const logout: ClientRequest = { method: "account/logout", id: "two" };
export const policy: v2.AskForApproval = "on-request";
export function words(message: ServerNotification): string {
  if (message.method === "item/agentMessage/delta") return message.params.delta;
  if (message.method === "turn/completed") return message.params.turn.error?.message ?? "";
  return "";
}
export const slept = (item: SleepItem): string => item.id;
"""

MISUSE = """
import type { ClientRequest } from "./index";

export const start: ClientRequest = { method: "turn/start", id: 1, params: { threadId: 5 } };
"""


@cache
def compiler() -> str:
    """Find the compiler that `make setup` installs beside the interpreter, or any other."""
    own = Path(sys.prefix, "node", "node_modules", ".bin", "tsc")
    program = str(own) if own.exists() else shutil.which("tsc")
    if not program:
        pytest.skip("no TypeScript compiler: make setup installs one when npm is there")
    return program


def compile_strictly(path: Path) -> subprocess.CompletedProcess[str]:
    """Compile a file and all its imports with the real compiler."""
    options = ["--strict", "--noEmit", "--exactOptionalPropertyTypes"]
    return subprocess.run(
        [compiler(), *options, str(path)], capture_output=True, text=True, timeout=50, check=False
    )


def text(path: str, *, experimental: bool = True) -> str:
    """Return one generated file without its header."""
    return typescript_files(experimental=experimental)[path].removeprefix(HEADER)


@pytest.mark.parametrize("experimental", [False, True])
def test_the_compiler_accepts_every_file_in_strict_mode(tmp_path: Path, experimental: bool) -> None:
    export_typescript(tmp_path, experimental=experimental)
    (tmp_path / "use.ts").write_text(USE, encoding="utf-8")

    result = compile_strictly(tmp_path / "use.ts")

    assert (result.stdout, result.returncode) == ("", 0)


def test_the_compiler_refuses_a_message_with_a_wrong_field(tmp_path: Path) -> None:
    export_typescript(tmp_path, experimental=False)
    (tmp_path / "misuse.ts").write_text(MISUSE, encoding="utf-8")

    assert compile_strictly(tmp_path / "misuse.ts").returncode != 0


def test_a_response_always_has_its_nulls_and_params_may_omit_them() -> None:
    assert text("v2/ThreadGoalGetResponse.ts").splitlines()[-1] == (
        "export type ThreadGoalGetResponse = { goal: ThreadGoal | null };"
    )
    assert text("v2/ModelListParams.ts").splitlines()[-1] == (
        "export type ModelListParams = { cursor?: string | null, "
        "includeHidden?: boolean | null, limit?: number | null, modelProvider?: string | null };"
    )


def test_unions_are_written_inline() -> None:
    assert text("v2/SessionSource.ts").splitlines()[-1] == (
        'export type SessionSource = "cli" | "vscode" | "exec" | "appServer" | "unknown" | '
        "{ custom: string } | { subAgent: SubAgentSource };"
    )


def test_requests_of_the_first_version_are_included() -> None:
    for experimental in (False, True):
        requests = text("ClientRequest.ts", experimental=experimental)
        assert '{ "method": "gitDiffToRemote", id: RequestId, params: GitDiffToRemoteParams }' in (
            requests
        )
    assert text("GetConversationSummaryParams.ts").splitlines()[-1] == (
        "export type GetConversationSummaryParams = "
        "{ rolloutPath: string } | { conversationId: ThreadId };"
    )


def test_stable_types_hide_experimental_methods_and_fields() -> None:
    stable, full = (typescript_files(experimental=each) for each in (False, True))

    assert ["v2/DynamicToolSpec.ts" in files for files in (stable, full)] == [False, True]
    assert ["collaborationMode/list" in files["ClientRequest.ts"] for files in (stable, full)] == [
        False,
        True,
    ]
    assert ["dynamicTools" in files["v2/ThreadStartParams.ts"] for files in (stable, full)] == [
        False,
        True,
    ]
