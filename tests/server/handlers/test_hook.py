"""`hooks/list`: which hooks are configured, whether they are trusted, and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.harness.peer import Peer
from tests.harness.threads import UNKNOWN_THREAD, Client
from tests.server.serving import configuration, notifications, refusal, result, serving
from treadle.protocol.base import JsonValue

STOP_HASH = "sha256:6f14477468be127a92604ce05b51030268ccd6077fa7a807515589cfcfc7fd17"
"""What release 0.169.0 computes for a `Stop` hook with the command `x`."""

ASYNC: dict[str, JsonValue] = {"async": True}


def command(words: str = "x", /, **changes: JsonValue) -> JsonValue:
    """A handler of a configuration file."""
    return {"type": "command", "command": words, **changes}


def group(*handlers: JsonValue, matcher: str | None = None) -> JsonValue:
    """Handlers with a matcher."""
    named = {} if matcher is None else {"matcher": matcher}
    return {**named, "hooks": list(handlers)}


def write(folder: Path, **events: JsonValue) -> Path:
    """Write a `hooks.json`."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "hooks.json").write_text(json.dumps({"hooks": events}), "utf-8")
    return folder / "hooks.json"


async def listed(peer: Peer, folder: Path) -> JsonValue:
    """The entry of a folder."""
    (entry,) = (await result(peer, "hooks/list", {"cwds": [str(folder)]}))["data"]
    return entry


def trust(key: str, digest: str, *, enabled: bool = True) -> str:
    """The user's decision about a hook."""
    switch = "" if enabled else "enabled = false\n"
    return f'[hooks.state."{key}"]\ntrusted_hash = "{digest}"\n{switch}'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home for the server."""
    home = tmp_path / "home"
    home.mkdir()
    return home


async def test_there_are_none_by_default(home: Path) -> None:
    """Upstream's answer where nothing is configured."""
    async with serving(configuration(home)) as peer:
        entry = await listed(peer, home)

    assert entry == {"cwd": str(home), "hooks": [], "warnings": [], "errors": []}


async def test_a_hook_of_the_user_is_listed_and_not_trusted_at_first(home: Path) -> None:
    """Upstream: the fields and the hash of release 0.169.0."""
    path = write(home, Stop=[group(command(statusMessage="checking"))])
    async with serving(configuration(home)) as peer:
        entry = await listed(peer, home)

    (hook,) = entry["hooks"]
    assert hook.pop("currentHash").startswith("sha256:")
    assert hook == {
        "key": f"{path}:stop:0:0",
        "eventName": "stop",
        "handlerType": "command",
        "command": "x",
        "async": False,
        "matcher": None,
        "timeoutSec": 600,
        "statusMessage": "checking",
        "additionalContextLimit": None,
        "sourcePath": str(path),
        "source": "user",
        "pluginId": None,
        "displayOrder": 0,
        "enabled": True,
        "isManaged": False,
        "trustStatus": "untrusted",
    }
    assert (entry["errors"], entry["warnings"]) == ([], [])


@pytest.mark.parametrize(
    ("event", "each", "digest"),
    [
        ("Stop", group(command()), STOP_HASH),
        (
            "PreToolUse",
            group(command(), matcher="Bash"),
            "sha256:8b3de0db500a24df6d2c8ddb5e04090edd5f3066951d7e252357fb79bb6bbd16",
        ),
        (
            "PreToolUse",
            group(command(additionalContextLimit=9, **ASYNC)),
            "sha256:6f8a45425c2baca2331808310f5fdd63e8af1c3df64e8304d6e8023077cb1e84",
        ),
        (
            "SessionEnd",
            group(command(**ASYNC)),
            "sha256:26c07be7a2ae7ad02412d4f394fdec061c2ee2867de79036ef270e9762eea445",
        ),
        (
            "SessionEnd",
            group(command(timeout=100), matcher="other"),
            "sha256:d1ab83531968c53651bc5e3ba2de334c45d90fb56816a40de575b241bd2b61ac",
        ),
        (
            "UserPromptSubmit",
            group(command(), matcher="ignored"),
            "sha256:9f83d2c9d1b48d3700283cd1d70b9fc7ad739f3245049d933978e90187ee8a84",
        ),
        (
            "PreToolUse",
            group({"type": "mcp_tool", "server": "s", "tool": "t", "input": {"a": 1}}),
            "sha256:adbc4c477a9752b3b9915a7b59c18ceb44c30a7f31f5a299be9eb6431ba7949f",
        ),
    ],
)
async def test_trust_given_to_the_reference_counts(
    home: Path, event: str, each: JsonValue, digest: str
) -> None:
    """Upstream: hashes that release 0.169.0 computed, so that a shared home is trusted once."""
    path = write(home, **{event: [each]})
    key = "".join(f"_{c.lower()}" if c.isupper() else c for c in event).lstrip("_")
    decided = trust(f"{path}:{key}:0:0", digest)
    async with serving(configuration(home, decided)) as peer:
        entry = await listed(peer, home)

    assert [(hook["currentHash"], hook["trustStatus"]) for hook in entry["hooks"]] == [
        (digest, "trusted")
    ]


async def test_a_changed_hook_is_modified_and_a_disabled_one_stays_trusted(home: Path) -> None:
    """Upstream."""
    path = write(home, Stop=[group(command(), command("y"))])
    decided = trust(f"{path}:stop:0:0", STOP_HASH, enabled=False)
    async with serving(configuration(home, decided + trust(f"{path}:stop:0:1", STOP_HASH))) as peer:
        entry = await listed(peer, home)

    shown = [(hook["command"], hook["enabled"], hook["trustStatus"]) for hook in entry["hooks"]]
    assert shown == [("x", False, "trusted"), ("y", True, "modified")]


async def test_a_client_trusts_a_hook_by_writing_its_hash(home: Path) -> None:
    """Upstream: `hooks.state` through `config/batchWrite`."""
    write(home, Stop=[group(command())])
    async with serving(configuration(home)) as peer:
        (hook,) = (await listed(peer, home))["hooks"]
        state = {hook["key"]: {"trusted_hash": hook["currentHash"]}}
        edit = {"keyPath": "hooks.state", "value": state, "mergeStrategy": "upsert"}
        await result(peer, "config/batchWrite", {"edits": [edit]})
        (hook,) = (await listed(peer, home))["hooks"]

    assert hook["trustStatus"] == "trusted"


def project(tmp_path: Path, level: str | None) -> tuple[Path, str]:
    """A repository with hooks, and the user's trust in it."""
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    path = write(folder / ".codex", Stop=[group(command())])
    own = f'[hooks.state."{path}:stop:0:0"]\ntrusted_hash = "{STOP_HASH}"\n'
    (folder / ".codex" / "config.toml").write_text(own, "utf-8")
    decided = "" if level is None else f'[projects."{folder}"]\ntrust_level = "{level}"\n'
    return folder, decided


@pytest.mark.parametrize("level", [None, "untrusted"])
async def test_an_untrusted_project_has_no_hooks(
    home: Path, tmp_path: Path, level: str | None
) -> None:
    """Upstream."""
    folder, decided = project(tmp_path, level)
    async with serving(configuration(home, decided)) as peer:
        entry = await listed(peer, folder)

    assert (entry["hooks"], entry["errors"]) == ([], [])


async def test_a_project_cannot_trust_its_own_hooks(home: Path, tmp_path: Path) -> None:
    """Upstream: a trusted project's hooks need the user's trust each."""
    folder, decided = project(tmp_path, "trusted")
    async with serving(configuration(home, decided)) as peer:
        entry = await listed(peer, folder)

    assert [(hook["source"], hook["trustStatus"]) for hook in entry["hooks"]] == [
        ("project", "untrusted")
    ]


async def test_hooks_of_every_layer_are_listed_with_the_administrators_first(
    home: Path, tmp_path: Path
) -> None:
    """Upstream: the order, the sources, and who needs no trust."""
    folder, decided = project(tmp_path, "trusted")
    write(tmp_path / "system", Stop=[group(command("system"))])
    requirements = '[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "required"\n'
    user = '[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "user"\n'
    flag = 'hooks.Stop=[{hooks=[{type="command",command="flag"}]}]'
    settings = configuration(home, user + decided, flag, requirements=requirements)
    async with serving(settings) as peer:
        entry = await listed(peer, folder)
        required = await result(peer, "configRequirements/read", None)

    assert [(h["command"], h["source"], h["trustStatus"]) for h in entry["hooks"]] == [
        ("required", "system", "managed"),
        ("system", "system", "managed"),
        ("user", "user", "untrusted"),
        ("x", "project", "untrusted"),
        ("flag", "sessionFlags", "untrusted"),
    ]
    (shown,) = required["requirements"]["hooks"]["Stop"]
    assert shown["hooks"][0]["command"] == "required"


async def test_an_administrator_can_allow_managed_hooks_only(home: Path, tmp_path: Path) -> None:
    """Upstream."""
    write(home, Stop=[group(command("user"))])
    write(tmp_path / "system", Stop=[group(command("system"))])
    settings = configuration(home, requirements="allow_managed_hooks_only = true")
    async with serving(settings) as peer:
        entry = await listed(peer, home)

    assert [hook["command"] for hook in entry["hooks"]] == ["system"]


async def test_a_required_hook_that_is_invalid_is_an_error(home: Path) -> None:
    """Ours: a requirement that cannot be enforced is never ignored."""
    requirements = '[[hooks.PreToolUse]]\n[[hooks.PreToolUse.hooks]]\ntype = "command"\n'
    async with serving(configuration(home, requirements=requirements)) as peer:
        warning = await peer.receive()
        entry = await listed(peer, home)

    assert warning["method"] == "configWarning"
    assert [error["message"] for error in entry["errors"]] == [
        "`PreToolUse[0].hooks[0]`: missing field `command` in requirements.toml"
    ]


async def test_hooks_of_a_profile_have_separate_keys(home: Path) -> None:
    """Ours: profiles are in the same file."""
    hook = 'type = "command"\ncommand = "x"\n'
    text = f'profile = "p"\n[[hooks.Stop]]\n[[hooks.Stop.hooks]]\n{hook}'
    text += f"[[profiles.p.hooks.Stop]]\n[[profiles.p.hooks.Stop.hooks]]\n{hook}"
    async with serving(configuration(home, text)) as peer:
        entry = await listed(peer, home)

    assert [hook["key"] for hook in entry["hooks"]] == [
        f"{home}/config.toml:stop:0:0",
        f"{home}/config.toml:profiles.p:stop:0:0",
    ]


async def test_hooks_can_be_switched_off(home: Path) -> None:
    """Upstream: the feature `hooks`."""
    write(home, Stop=[group(command())])
    async with serving(configuration(home, "[features]\nhooks = false")) as peer:
        entry = await listed(peer, home)

    assert entry["hooks"] == []


FILE_FAULTS: Mapping[str, str] = {
    "{": "line 1: Expecting property name enclosed in double quotes (column 2)",
    '{\n"hooks": {}\n,}': "line 3: ",
    "[]": 'line 1: expected an object with "hooks"',
    '{"x": 1}': "unknown field `x`, expected `description` or `hooks`",
    '{"hooks": {"Stop": [], "Stop": []}}': "duplicate field `Stop`",
    '{"hooks": []}': "line 1: expected an object with events, got an array",
    '{"hooks":\n{"Nope": []}}': "line 2: unknown event `Nope`",
    '{"hooks": {\n"Stop": {}}}': "line 2: `Stop`: expected an array, got an object",
    '{"hooks": {"Stop": [\n1]}}': "line 2: `Stop[0]`: expected an object with `hooks`, got int",
    '{"hooks": {"Stop": [{"hooks":\n5}]}}': "line 1: `Stop[0]`: `hooks`: expected an array",
    '{"hooks": {"Stop": [{"hooks": [{},\n{"type": "nope"}]}]}}': "missing field `type`",
    '{"hooks": {"Stop": [{"hooks": [\n\n{"type": "nope"}]}]}}': (
        "line 3: `Stop[0].hooks[0]`: unknown variant `nope` at `type`, "
        "expected one of `command`, `mcp_tool`, `prompt`, `agent`"
    ),
    '{"hooks": {"Stop": [{"hooks": [{"type": "command"}]}]}}': "missing field `command`",
    '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "x", "timeout": -1}]}]}}': (
        "`timeout`"
    ),
    '{"hooks": {"PreToolUse": [\n{"matcher": "[", "hooks": [{"type": "command", "command": "x"}]}'
    "]}}": "line 2: `PreToolUse[0].hooks[0]`: invalid matcher '['",
    '{"hooks": {"PreToolUse": [{"matcher": 1, "hooks": [{"type": "command", "command": "x"}]}]}}': (
        "`matcher`: expected a string, got int"
    ),
    '{"hooks": ' + "[" * 10_000 + "]" * 10_000 + "}": "nested too deeply",
    " " * 300_000: "larger than",
}


@pytest.mark.parametrize("text", FILE_FAULTS, ids=range(len(FILE_FAULTS)))
async def test_an_invalid_file_is_reported_with_its_line_and_the_others_load(
    home: Path, text: str
) -> None:
    """Ours: the reference reports it among the warnings, without a line for most faults."""
    (home / "hooks.json").write_text(text, "utf-8")
    good = '[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "good"\n'
    async with serving(configuration(home, good)) as peer:
        entry = await listed(peer, home)

    first = entry["errors"][0]
    assert first["path"] == str(home / "hooks.json")
    assert FILE_FAULTS[text] in first["message"]
    assert [hook["command"] for hook in entry["hooks"]] == ["good"]


STOP = '[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "x"\n'
TOML_FAULTS: Mapping[str, str] = {
    '[[hooks.Stop]]\n\n[[hooks.Stop.hooks]]\ntype = "nope"\n': (
        "line 3: `Stop[0].hooks[0]`: unknown variant `nope` at `type`, "
        "expected one of `command`, `mcp_tool`, `prompt`, `agent`"
    ),
    '[hooks]\nStop = [{ hooks = [\n{ type = "command" }] }]\n': "line 2: `Stop[0].hooks[0]`: ",
    '[[hooks.PreToolUse]]\nmatcher = "["\n[[hooks.PreToolUse.hooks]]\ntype = "command"\n'
    'command = "x"\n': "line 3: `PreToolUse[0].hooks[0]`: invalid matcher '['",
    "[hooks]\n\nNope = []\n": "line 3: unknown event `Nope`",
    f"{STOP}commandWindows = 5\n": "line 2: `Stop[0].hooks[0]`: ",
    f"{STOP}command_windows = 5\n": "line 2: `Stop[0].hooks[0]`: ",
}


@pytest.mark.parametrize("text", TOML_FAULTS, ids=range(len(TOML_FAULTS)))
async def test_a_fault_in_the_configuration_is_reported_with_its_line(
    home: Path, text: str
) -> None:
    """Upstream names the line of the group; ours, that of the hook."""
    async with serving(configuration(home, text)) as peer:
        entry = await listed(peer, home)

    (error,) = entry["errors"]
    assert error["path"] == str(home / "config.toml")
    assert TOML_FAULTS[text] in error["message"]
    assert entry["hooks"] == []


@pytest.mark.parametrize("name", ["commandWindows", "command_windows"])
async def test_a_command_for_windows_is_not_used(home: Path, name: str) -> None:
    """Upstream on Linux: both spellings, and the hash does not depend on them."""
    async with serving(configuration(home, f'{STOP}{name} = "w"\n')) as peer:
        entry = await listed(peer, home)

    (hook,) = entry["hooks"]
    assert (hook["command"], hook["currentHash"]) == ("x", STOP_HASH)
    assert (entry["errors"], entry["warnings"]) == ([], [])


async def test_a_file_that_is_not_a_file_or_not_text_is_reported(home: Path) -> None:
    """Ours."""
    (home / "hooks.json").write_bytes(b"\xff")
    async with serving(configuration(home)) as peer:
        not_text = await listed(peer, home)
        (home / "hooks.json").unlink()
        (home / "hooks.json").mkdir()
        folder = await listed(peer, home)

    assert len(not_text["errors"]) == len(folder["errors"]) == 1


async def test_good_hooks_of_a_file_load_beside_an_invalid_one(home: Path) -> None:
    """Ours: the reference drops the whole file."""
    write(home, Stop=[group({"type": "command"}, command("good"))])
    async with serving(configuration(home)) as peer:
        entry = await listed(peer, home)

    assert [(hook["key"][-8:], hook["command"]) for hook in entry["hooks"]] == [
        ("stop:0:1", "good")
    ]
    assert len(entry["errors"]) == 1


async def test_what_is_ignored_or_skipped_is_a_warning(home: Path) -> None:
    """Upstream: what is warned about."""
    path = write(
        home,
        Stop=[
            group(
                {"type": "prompt"},
                {"type": "agent"},
                command(" "),
                command(additionalContextLimit=5),
            )
        ],
        SessionEnd=[group(command(timeout=9, **ASYNC))],
    )
    toml = '[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "user"\n'
    async with serving(configuration(home, toml)) as peer:
        entry = await listed(peer, home)

    assert entry["warnings"] == [
        f"{path}: running async SessionEnd hook synchronously",
        f"{path}: clamping SessionEnd hook timeout to 3s",
        f"{path}: skipping prompt hook: prompt hooks are not supported",
        f"{path}: skipping agent hook: agent hooks are not supported",
        f"{path}: skipping empty hook command",
        (
            f"{path}: ignoring additionalContextLimit for Stop hook: "
            "this event cannot emit additionalContext"
        ),
        (
            f"loading hooks from both {path} and {home}/config.toml; "
            "prefer a single representation for this layer"
        ),
    ]
    assert [hook["timeoutSec"] for hook in entry["hooks"]] == [3, 600, 600]


async def test_the_number_of_hooks_is_limited(home: Path) -> None:
    """Ours."""
    write(home, Stop=[group(*[command() for _ in range(300)])])
    async with serving(configuration(home)) as peer:
        entry = await listed(peer, home)

    assert len(entry["hooks"]) == 200
    assert [error["message"] for error in entry["errors"]] == ["line 1: more than 200 hooks"]


async def test_a_folder_with_a_broken_configuration_is_reported(home: Path) -> None:
    """Ours."""
    async with serving(configuration(home, "model = [")) as peer:
        await notifications(peer, 1)
        entry = await listed(peer, home)

    assert [error["path"] for error in entry["errors"]] == [str(home / "config.toml")]


async def test_the_hooks_of_a_loaded_thread_include_those_of_its_request(
    home: Path, tmp_path: Path
) -> None:
    """Upstream: `threadId` of release 0.169.0, and hooks in the `config` of `thread/start`."""
    config = {"hooks": {"Stop": [group(command("mine"))]}}
    async with serving(configuration(home)) as peer:
        params = {"cwd": str(tmp_path), "config": config}
        client = Client(peer)
        thread_id = await client.start(**params)
        (entry,) = (await client.request("hooks/list", {"threadId": thread_id}))["data"]

    assert entry["cwd"] == str(tmp_path)
    assert [(hook["command"], hook["source"]) for hook in entry["hooks"]] == [
        ("mine", "sessionFlags")
    ]


async def test_bad_params_are_refused(home: Path) -> None:
    """Ours: `threadId` excludes `cwds`."""
    async with serving(configuration(home)) as peer:
        both = await refusal(peer, "hooks/list", {"threadId": "t", "cwds": [str(home)]})
        unknown = await refusal(peer, "hooks/list", {"threadId": UNKNOWN_THREAD})
        wrong = await refusal(peer, "hooks/list", {"cwds": "x"})

    assert "threadId cannot be combined with cwds" in both["message"]
    assert f"thread not found: {UNKNOWN_THREAD}" in unknown["message"]
    assert "cwds" in wrong["message"]
