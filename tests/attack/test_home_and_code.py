"""No command or tool can change the server's home, its code or the folders of its settings."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import treadle
from tests.harness.attempts import attempts, look_at
from tests.harness.commands import bench
from tests.harness.model_server import patches
from tests.harness.peer import Peer
from tests.harness.sandbox import find_backend, findings, using
from tests.harness.threads import Client, Stage, params_of
from tests.sandbox.commands import PYTHON, run
from treadle.protocol.permission import AdditionalFileSystemPermissions, AdditionalPermissionProfile
from treadle.protocol.policy import ReadOnlySandboxPolicy, WorkspaceWriteSandboxPolicy
from treadle.sandbox.backends.base import Landlock
from treadle.sandbox.backends.placeholders import take
from treadle.sandbox.backends.selection import Backend, SandboxUnavailable
from treadle.sandbox.boundary import Boundary
from treadle.sandbox.policy import Confinement
from treadle.sandbox.protection import Protection, code_paths, server_protection
from treadle.transport.subprocess import spawn

WRITES = {"approvalPolicy": "never", "sandbox": "workspace-write"}
RULE = 'prefix_rule(pattern=["sh"], decision="allow")\n'


@pytest.fixture(scope="module")
def working() -> dict[str, Backend]:
    async def find() -> dict[str, Backend]:
        return {f.name: f.backend async for f in findings() if f.backend is not None}

    return asyncio.run(find())


@pytest.fixture(params=["bubblewrap", "landlock"])
def backend(request: pytest.FixtureRequest, working: dict[str, Backend]) -> Iterator[Backend]:
    """Provide each backend with its defaults: Landlock without `landlock_protects`."""
    if request.param not in working:
        pytest.skip(f"{request.param} does not work here")
    with using(working[request.param]):
        yield working[request.param]


def confine(
    protection: Protection, cwd: Path, *roots: Path, granted: list[Path] | None = None
) -> Confinement:
    policy = WorkspaceWriteSandboxPolicy(
        exclude_slash_tmp=True,
        exclude_tmpdir_env_var=True,
        writable_roots=[str(root) for root in roots],
    )
    files = AdditionalFileSystemPermissions(write=[str(path) for path in granted or ()])
    profile = AdditionalPermissionProfile(file_system=files)
    return Boundary(protection).confine(policy, str(cwd), granted=[profile])


def furnished(home: Path) -> Path:
    """Create a home with settings in it."""
    (home / "rules").mkdir(parents=True)
    (home / "config.toml").write_text("precious")
    (home / "rules" / "default.rules").write_text("precious")
    return home


async def attacked(confinement: Confinement, writable: Path, *paths: Path) -> bool:
    """Run all attempts against the paths; return whether one of the paths changed."""
    named = [str(path) for path in paths]
    has_modes = (await find_backend()).name != "landlock"
    before = look_at(named, modes=has_modes)
    done = await run(attempts(writable, named), confinement, cwd=writable)
    assert done.stdout == "over\n", done.stderr
    return look_at(named, modes=has_modes) != before


LAYOUTS = {
    "the workspace is the home's parent": ("ws/home", "ws"),
    "the home is deep in the workspace": ("ws/a/b/c/home", "ws"),
    "the workspace is the home": ("ws/home", "ws/home"),
    "a root is a folder of the home": ("ws/home", "ws/home/rules"),
}


@pytest.mark.parametrize(("home_at", "cwd_at"), LAYOUTS.values(), ids=LAYOUTS)
async def test_home_cannot_be_changed_by_a_command(
    backend: Backend, tmp_path: Path, home_at: str, cwd_at: str
) -> None:
    home = furnished(tmp_path / home_at)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    confinement = confine(Protection(homes=[str(home)]), tmp_path / cwd_at, scratch)
    assert not await attacked(confinement, scratch, home)
    assert not confinement.may_write(str(home / "rules" / "default.rules"))
    assert not confinement.may_write(str(home / "new"))
    assert confinement.may_write(str(scratch / "new"))


async def test_home_stays_protected_when_it_is_granted(backend: Backend, tmp_path: Path) -> None:
    home = furnished(tmp_path / "ws" / "home")
    granted = [home, home / "rules", home / "config.toml"]
    confinement = confine(Protection(homes=[str(home)]), tmp_path / "ws", granted=granted)
    assert not confinement.may_write(str(home / "config.toml"))
    (tmp_path / "ws" / "scratch").mkdir()
    assert not await attacked(confinement, tmp_path / "ws" / "scratch", home)


async def test_worktree_in_the_home_is_writable_and_the_rest_is_not(
    backend: Backend, tmp_path: Path
) -> None:
    home = furnished(tmp_path / "home")
    worktree = home / "worktrees" / "1" / "project"
    worktree.mkdir(parents=True)
    confinement = confine(Protection(homes=[str(home)]), worktree)
    done = await run(["/bin/sh", "-c", "echo x > new"], confinement, cwd=worktree)
    assert (done.stderr, (worktree / "new").read_text()) == ("", "x\n")
    assert not await attacked(confinement, worktree, home / "config.toml", home / "rules")


async def test_settings_behind_links_stay_protected(backend: Backend, tmp_path: Path) -> None:
    """The files of the home are links into a folder of dotfiles, which is in the workspace."""
    ws, home = tmp_path / "ws", tmp_path / "linked"
    dotfiles = furnished(ws / "dotfiles" / "treadle")
    home.mkdir()
    for name in ("config.toml", "rules"):
        (home / name).symlink_to(dotfiles / name)
    (ws / "scratch").mkdir()
    confinement = confine(Protection(homes=[str(home)]), ws)
    settings = [dotfiles / "config.toml", dotfiles / "rules"]
    assert not any(confinement.may_write(str(path)) for path in settings)
    assert not await attacked(confinement, ws / "scratch", *settings)


async def test_link_that_leads_to_the_home_cannot_be_replaced(
    backend: Backend, tmp_path: Path
) -> None:
    home = furnished(tmp_path / "elsewhere")
    (tmp_path / "ws" / "deep").mkdir(parents=True)
    (tmp_path / "ws" / "scratch").mkdir()
    link = tmp_path / "ws" / "deep" / "home"
    link.symlink_to(home)
    confinement = confine(Protection(homes=[str(link)]), tmp_path / "ws")
    assert not await attacked(confinement, tmp_path / "ws" / "scratch", link)


async def test_link_to_the_home_directly_in_the_workspace_stops_commands(
    working: dict[str, Backend], tmp_path: Path
) -> None:
    if "bubblewrap" not in working:
        pytest.skip("bubblewrap does not work here")
    (tmp_path / "ws").mkdir()
    link = tmp_path / "ws" / "home"
    link.symlink_to(furnished(tmp_path / "elsewhere"))
    confinement = confine(Protection(homes=[str(link)]), tmp_path / "ws")
    with using(working["bubblewrap"]), pytest.raises(SandboxUnavailable, match="is a link"):
        await run(["true"], confinement, cwd=tmp_path / "ws")


async def test_missing_home_cannot_be_created_by_a_command(
    working: dict[str, Backend], tmp_path: Path
) -> None:
    """Another server may be started later with the default home."""
    if "bubblewrap" not in working:
        pytest.skip("bubblewrap does not work here")
    ws = tmp_path / "ws"
    (ws / "scratch").mkdir(parents=True)
    confinement = confine(Protection(homes=[str(ws / "a" / "b")]), ws)
    with using(working["bubblewrap"]):
        script = "mkdir -p a/b && echo x > a/b/config.toml"
        await run(["/bin/sh", "-c", script], confinement, cwd=ws)
    assert sorted(path.name for path in ws.iterdir()) == ["scratch"]


async def test_code_in_the_workspace_cannot_be_changed(backend: Backend, tmp_path: Path) -> None:
    """The layout of the README: `.venv/bin/treadle` in the folder where the agent works."""
    ws = tmp_path / "ws"
    package = ws / ".venv" / "lib" / "python3" / "site-packages" / "treadle"
    package.mkdir(parents=True)
    (package / "late.py").write_text("precious")
    (ws / "scratch").mkdir()
    protection = Protection(closed=[str(package)], reserved=[str(ws / ".venv")])
    granted = [ws / ".venv", package, package / "late.py"]
    confinement = confine(protection, ws, granted=granted)
    assert not confinement.may_write(str(package / "late.py"))
    assert not await attacked(confinement, ws / "scratch", ws / ".venv", package)


def test_server_protects_what_it_loads_code_from(tmp_path: Path) -> None:
    package = str(Path(treadle.__file__).parent)
    closed, reserved = code_paths()
    assert package in closed
    assert {sys.prefix, sys.base_prefix} <= {*reserved, "/"}
    for name in ("aiohttp", "msgspec", "tomlkit", "asyncio", "_ctypes"):
        spec = __import__("importlib.util").util.find_spec(name)
        assert any(spec.origin.startswith(f"{path}/") for path in (*closed, *reserved)), name
    home = tmp_path / "home"
    confinement = confine(server_protection(str(home)), Path("/"), granted=[Path("/")])
    for path in (package, sys.prefix, sys.base_prefix, str(home)):
        assert not confinement.may_write(f"{path}/planted.py"), path


def test_folder_that_is_mounted_twice_is_recognised(tmp_path: Path) -> None:
    """The same home seen through another mount; runs in its own mount namespace."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    furnished(tmp_path / "real" / "ws" / "home")
    (tmp_path / "alias").mkdir()
    script = f"""
import subprocess, sys
from pathlib import Path
from treadle.protocol.policy import WorkspaceWriteSandboxPolicy
from treadle.sandbox.boundary import Boundary
from treadle.sandbox.protection import Protection
top = Path({str(tmp_path)!r})
subprocess.run(["mount", "--bind", top / "real", top / "alias"], check=True)
boundary = Boundary(Protection(homes=[str(top / "real" / "ws" / "home")]))
policy = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
outer = boundary.confine(policy, str(top / "alias" / "ws"))
inner = boundary.confine(policy, str(top / "alias" / "ws" / "home" / "rules"))
print(outer.may_write(str(top / "alias/ws/home/config.toml")), len(inner.writable))
"""
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip("root may not create a mount namespace here")
    assert (done.stdout, done.stderr) == ("False 0\n", "")


SET_FLAGS = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
flags = ctypes.create_string_buffer(struct.pack("=QIIII", 0x40, 0, 0, 0, 0))
done = libc.syscall(469, -100, os.fsencode(sys.argv[1]), flags, ctypes.c_size_t(24), 0)
print(done, ctypes.get_errno())
"""


async def test_attributes_of_a_file_outside_cannot_be_set_by_its_path(
    backend: Backend, tmp_path: Path
) -> None:
    """`file_setattr`, in Linux since 6.17, is not checked by Landlock."""
    file = tmp_path / "file"
    file.write_text("precious")
    confinement = Boundary(Protection()).confine(ReadOnlySandboxPolicy(), str(tmp_path))
    done = await run([*PYTHON, SET_FLAGS, str(file)], confinement, cwd=tmp_path)
    assert done.stdout == f"-1 {errno.EPERM}\n"


async def test_interpreter_cannot_be_redirected_by_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreter reads a `pyvenv.cfg` beside or above itself, even one made by a command."""
    program = tmp_path / "ws" / "python" / "bin" / "python3"
    program.parent.mkdir(parents=True)
    program.write_text("")
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(program))
        closed, _ = code_paths()
    confinement = confine(Protection(closed=closed), tmp_path / "ws")
    for folder in (program.parent, program.parent.parent):
        assert not confinement.may_write(str(folder / "pyvenv.cfg"))
    assert confinement.may_write(str(program.parent.parent / "other"))
    if (await find_backend()).name == "bubblewrap":
        script = "touch python/pyvenv.cfg python/bin/pyvenv.cfg; echo x > python/pyvenv.cfg"
        await run(["/bin/sh", "-c", script], confinement, cwd=tmp_path / "ws")
        assert [path.name for path in program.parent.parent.iterdir()] == ["bin"]
        assert [path.name for path in program.parent.iterdir()] == ["python3"]


def test_mode_of_a_placeholder_is_not_applied_to_the_target_of_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command puts the link there after the folder is made and before its mode is set."""
    target, place, mkdir = tmp_path / "target", tmp_path / ".codex", Path.mkdir
    target.mkdir(0o700)

    def swapped(path: Path, mode: int) -> None:
        mkdir(path, mode)
        path.rmdir()
        path.symlink_to(target)

    monkeypatch.setattr(Path, "mkdir", swapped)
    assert take(str(place)) is None
    assert target.stat().st_mode & 0o7777 == 0o700


# -- through a server


async def test_patch_leaves_no_set_user_id_bit_on_what_it_writes(home: Path) -> None:
    async with bench(home, **WRITES) as bench_:
        file = bench_.stage.workspace / "tool"
        file.write_text("old\n")
        file.chmod(0o6755)
        patch = "*** Begin Patch\n*** Update File: tool\n@@\n-old\n+new\n*** End Patch"
        await bench_.call("exec_command", {"cmd": f"apply_patch <<'EOF'\n{patch}\nEOF"})
    assert (file.read_text(), file.stat().st_mode & 0o7777) == ("new\n", 0o755)


async def test_rule_that_a_command_plants_allows_no_command(home: Path) -> None:
    async with bench(home, **WRITES) as bench_:
        top = str(home.parent)
        thread_id = await bench_.client.start(cwd=top, **WRITES)
        bench_.thread_id = thread_id
        script = f"mkdir -p {home}/rules; echo '{RULE}' > {home}/rules/default.rules; echo over"
        _, output = await bench_.call("exec_command", {"cmd": script})
        assert "over" in output
    assert not (home / "rules").exists()


async def test_patch_of_the_home_is_not_approved_automatically(home: Path) -> None:
    async with bench(home, **WRITES) as bench_:
        client = bench_.client
        thread_id = await client.start(cwd=str(home.parent), **WRITES)
        patch = f"*** Begin Patch\n*** Add File: {home}/rules/default.rules\n+x\n*** End Patch"
        bench_.stage.model.plays(patches(patch))
        messages = await client.run(thread_id)
        assert "writing outside of the project" in bench_.output()
        assert not params_of(messages, "turn/diff/updated")
    assert not (home / "rules").exists()


async def test_command_exec_cannot_write_the_home(stage: Stage) -> None:
    client = await stage.client()
    script = f"echo x > {stage.home}/planted; echo over"
    params = {
        "command": ["/bin/sh", "-c", script],
        "cwd": str(stage.home.parent),
        "sandboxPolicy": {"type": "workspaceWrite", "writableRoots": [str(stage.home)]},
    }
    answer = await client.request("command/exec", params)
    assert answer["stdout"] == "over\n"
    assert not (stage.home / "planted").exists()


async def test_landlock_keeps_the_unprotected_parts_usable(tmp_path: Path) -> None:
    """Under Landlock the parent folder of the home is opened entry by entry."""
    ws = tmp_path / "ws"
    furnished(ws / "home")
    (ws / "src").mkdir()
    confinement = confine(Protection(homes=[str(ws / "home")]), ws)
    with using(Landlock()):
        done = await run([*PYTHON, "open('src/new', 'w').write('x')"], confinement, cwd=ws)
    assert (done.stderr, (ws / "src" / "new").read_text()) == ("", "x")


# -- code that is imported late


async def test_running_server_loads_no_code_that_changed(home: Path) -> None:
    """The package is in the workspace, and was changed despite the protection."""
    ws = home.parent / "ws"
    package = Path(treadle.__file__).parent
    shutil.copytree(package, ws / "lib" / "treadle", ignore=shutil.ignore_patterns("__pycache__"))
    marker = home.parent / "marker"
    (ws / "tomlkit.py").write_text("")
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "TREADLE_HOME": str(home)}
    env["PYTHONPATH"] = str(ws / "lib")
    transport = spawn([sys.executable, "-m", "treadle", "app-server"], cwd=ws, env=env)
    try:
        async with asyncio.timeout(60):
            client = Client(Peer(transport))
            await client.initialize()
            await client.request("thread/loaded/list", {})
            with (ws / "lib/treadle/server/handlers/skill.py").open("a") as file:
                file.write(f"\nopen({str(marker)!r}, 'w').close()\n")
            refused = await client.refusal("skills/list", {})
            assert refused.code == -32603
            await client.request("thread/loaded/list", {})
            # A module in the working folder does not shadow an installed one.
            value = {"keyPath": "model", "value": "x", "mergeStrategy": "replace"}
            await client.request("config/value/write", value)
    finally:
        await transport.close()
    assert not marker.exists()
    assert 'model = "x"' in (home / "config.toml").read_text()
