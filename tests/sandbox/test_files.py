"""What a confined command can do to files: much in its workspace, nothing elsewhere."""

from __future__ import annotations

import os
import pty
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.sandbox import using
from tests.sandbox.commands import (
    PYTHON,
    confine,
    names,
    new_token,
    run,
    snapshot,
    start,
    workspace,
)
from treadle.protocol.permission import (
    AdditionalFileSystemPermissions,
    AdditionalPermissionProfile,
    FileSystemSandboxEntry,
    PathFileSystemPath,
)
from treadle.protocol.policy import (
    ReadOnlySandboxPolicy,
    RestrictedReadOnlyAccess,
    WorkspaceWriteSandboxPolicy,
)
from treadle.sandbox.backends.base import Bubblewrap
from treadle.sandbox.backends.bubblewrap import NamespaceSupport
from treadle.sandbox.backends.selection import Backend, SandboxUnavailable
from treadle.sandbox.policy import UNRESTRICTED

# OUT is the folder outside, WS the workspace, OWNER the process that runs the sandbox.
TRUNCATE = "import os; os.truncate({!r}, 0)"
ATTACKS = {
    "a new file": "echo x > $OUT/new",
    "a change": "echo x >> $OUT/file",
    "a path with dots": "echo x > $WS/../outside/new",
    "a link to the folder": "ln -s $OUT $WS/link; echo x > $WS/link/new; echo x > $WS/link/file",
    "a link to the file": "ln -s $OUT/file $WS/link; echo x > $WS/link",
    "a hard link": "ln $OUT/file $WS/hard; echo x > $WS/hard",
    "a hard link the other way": "echo x > $WS/a; ln $WS/a $OUT/new",
    "a rename out": "echo x > $WS/a; mv $WS/a $OUT/file",
    "a rename in": "mv $OUT/file $WS/; mv $OUT/folder $WS/",
    "a removal": "rm -rf $OUT/file $OUT/folder",
    "a new folder": "mkdir $OUT/new; mkfifo $OUT/fifo; ln -s x $OUT/link",
    "the root of the own process": "echo x > /proc/self/root$OUT/file",
    "the root of the first process": "echo x > /proc/1/root$OUT/file",
    "the root of the owner": "echo x > /proc/$OWNER/root$OUT/file; echo x > /proc/$OWNER/cwd/new",
    "the folder of the own process": "cd $OUT; echo x > /proc/self/cwd/file",
    "a bind mount": "mkdir $WS/m; mount --bind $OUT $WS/m; echo x > $WS/m/file",
    "a mount of one's own": (
        "mkdir $WS/m; unshare -Urm sh -c 'mount --bind $OUT $WS/m; echo x > $WS/m/file'"
    ),
    "a remount": "mount -o remount,rw /; echo x > $OUT/file; umount $OUT; echo x > $OUT/new",
}


@pytest.fixture
def slash_tmp_file() -> Iterator[Path]:
    """Return an unused name in /tmp."""
    place = Path("/tmp", new_token())  # noqa: S108 - the folder that is tested
    yield place
    place.unlink(missing_ok=True)


def spelled_out(attack: str, ws: Path, outside: Path) -> str:
    for name, value in {"OUT": outside, "WS": ws, "OWNER": os.getpid()}.items():
        attack = attack.replace(f"${name}", str(value))
    return attack


def is_there(path: Path) -> bool:
    return path.exists()


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
async def test_nothing_is_written_outside(
    backend: Backend, ws: Path, outside: Path, attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(outside)  # so that the owner's folder is checked too
    before = snapshot(outside)
    script = spelled_out(attack, ws, outside) + "; echo over"
    done = await run(["/bin/sh", "-c", script], workspace(ws), cwd=ws)
    assert done.stdout == "over\n"
    assert snapshot(outside) == before


@pytest.mark.parametrize(
    "flavour", [NamespaceSupport(has_proc=False), NamespaceSupport(has_user=False)]
)
async def test_nothing_is_written_outside_under_fewer_privileges(
    ws: Path, outside: Path, flavour: NamespaceSupport
) -> None:
    """Containers that hide /proc, and root users that may not create user namespaces."""
    before = snapshot(outside)
    program = shutil.which("bwrap") or "bwrap"
    with using(Bubblewrap(program, flavour)):
        if (await run(["true"], workspace(ws))).exit_code != 0:
            pytest.skip("not for this user, or not on this machine")
        for attack in ATTACKS.values():
            script = spelled_out(attack, ws, outside) + "; rm -rf ./*; echo over"
            done = await run(["/bin/sh", "-c", script], workspace(ws), cwd=ws)
            assert done.stdout == "over\n"
    assert snapshot(outside) == before


async def test_a_library_that_a_command_preloads_is_loaded_inside_only(
    bubblewrap: Backend, ws: Path
) -> None:
    process, output = await start(
        ["/bin/sh", "-c", "echo $LD_PRELOAD $A"],
        workspace(ws),
        env={"LD_PRELOAD": "/none/evil.so", "A": "1"},
    )
    await process.wait()
    complaints = output.stderr.decode().splitlines()
    assert output.text == "/none/evil.so 1\n"
    # The shell's loader complains about a missing library; bubblewrap's was not asked for it.
    assert [line for line in complaints if "evil.so" in line] == complaints[:1]


@pytest.mark.parametrize(
    "attack", [a for a in ATTACKS.values() if "mount" not in a and "/proc/1/" not in a]
)
async def test_without_a_sandbox_the_same_attempts_succeed(
    ws: Path, outside: Path, attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(outside)
    before = snapshot(outside)
    script = spelled_out(attack, ws, outside)
    await run(["/bin/sh", "-c", script], UNRESTRICTED, cwd=outside)
    assert snapshot(outside) != before


async def test_a_file_outside_is_not_truncated(backend: Backend, ws: Path, outside: Path) -> None:
    done = await run([*PYTHON, TRUNCATE.format(str(outside / "file"))], workspace(ws))
    assert done.exit_code == 1
    assert (outside / "file").read_text() == "precious"


async def test_a_terminal_outside_cannot_be_read(backend: Backend, ws: Path) -> None:
    """A command that reads it takes what its user types, such as the answer to a question."""
    outer, inner = pty.openpty()
    try:
        os.write(outer, b"typed\n")
        done = await run(["head", "-n1", os.ttyname(inner)], workspace(ws))
    finally:
        os.close(outer)
        os.close(inner)
    assert (done.exit_code, done.stdout) == (1, "")


async def test_a_pipe_outside_is_closed_under_landlock_only(
    backend: Backend, ws: Path, outside: Path
) -> None:
    """A known gap, also of the reference: a read-only mount does not prevent writes to pipes."""
    pipe = outside / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        await run(["/bin/sh", "-c", f"echo x > {pipe}"], workspace(ws), cwd=ws)
        data = os.read(reader, 10)
    finally:
        os.close(reader)
    assert data == (b"x\n" if backend.name == "bubblewrap" else b"")


async def test_modes_and_times_outside_are_unchanged(
    bubblewrap: Backend, ws: Path, outside: Path
) -> None:
    before = (outside / "file").stat()
    await run(["/bin/sh", "-c", f"chmod 777 {outside}/file; touch {outside}/file"], workspace(ws))
    assert (outside / "file").stat() == before


async def test_modes_and_times_are_unchanged_when_nothing_is_writable(
    backend: Backend, outside: Path
) -> None:
    before = (outside / "file").stat()
    readonly = confine(ReadOnlySandboxPolicy(), str(outside))
    await run(["/bin/sh", "-c", f"chmod 777 {outside}/file; touch {outside}/file"], readonly)
    assert (outside / "file").stat() == before


async def test_the_workspace_can_be_written(backend: Backend, ws: Path) -> None:
    script = "mkdir -p d/e; echo x > d/e/f; mv d/e/f g; ln -s g h; ln g i; rm -r d; chmod 600 g"
    done = await run(["/bin/sh", "-ec", script], workspace(ws), cwd=ws)
    assert (done.exit_code, done.stderr) == (0, "")
    assert {name: content for name, (_mode, content) in snapshot(ws).items()} == {
        "g": "x\n",
        "h": "g",
        "i": "x\n",
    }


async def test_read_only_writes_nowhere(backend: Backend, ws: Path, slash_tmp_file: Path) -> None:
    confinement = confine(ReadOnlySandboxPolicy(), str(ws), environ={"TMPDIR": str(ws)})
    script = f"echo x > a; echo x > {slash_tmp_file}; cat /etc/passwd > /dev/null && echo read"
    done = await run(["/bin/sh", "-c", script], confinement, cwd=ws)
    assert done.stdout == "read\n"
    assert (names(ws), is_there(slash_tmp_file)) == ([], False)


@pytest.mark.parametrize("is_excluded", [True, False])
async def test_the_tmpdir_folder_is_writable_unless_excluded(
    backend: Backend, ws: Path, outside: Path, is_excluded: bool
) -> None:
    policy = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True, exclude_tmpdir_env_var=is_excluded)
    confinement = confine(policy, str(ws), environ={"TMPDIR": str(outside)})
    await run(["/bin/sh", "-c", f"echo x > {outside}/new"], confinement)
    assert (outside / "new").exists() is not is_excluded


@pytest.mark.parametrize("is_excluded", [True, False])
async def test_slash_tmp_is_writable_unless_excluded(
    backend: Backend, ws: Path, slash_tmp_file: Path, is_excluded: bool
) -> None:
    policy = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=is_excluded, exclude_tmpdir_env_var=True)
    await run(["/bin/sh", "-c", f"echo x > {slash_tmp_file}"], confine(policy, str(ws)))
    assert is_there(slash_tmp_file) is not is_excluded


async def test_granted_folders_are_writable(backend: Backend, ws: Path, outside: Path) -> None:
    files = AdditionalFileSystemPermissions(write=[str(outside / "folder")])
    granted = AdditionalPermissionProfile(file_system=files)
    policy = ReadOnlySandboxPolicy()
    confinement = confine(policy, str(ws), granted=[granted])
    script = f"echo x > {outside}/folder/new; echo x > {outside}/new"
    await run(["/bin/sh", "-c", script], confinement)
    assert sorted(snapshot(outside)) == ["file", "folder", "folder/new"]


async def test_denied_paths_cannot_be_read(backend: Backend, ws: Path, outside: Path) -> None:
    denied = [
        FileSystemSandboxEntry(access="deny", path=PathFileSystemPath(str(outside / name)))
        for name in ("file", "folder")
    ]
    (outside / "folder" / "secret").write_text("precious")
    files = AdditionalFileSystemPermissions(entries=denied)
    granted = [AdditionalPermissionProfile(file_system=files)]
    confinement = confine(ReadOnlySandboxPolicy(), str(ws), granted=granted)
    script = "cat file; cat folder/secret; chmod 777 folder; ls folder"
    done = await run(["/bin/sh", "-c", script], confinement, cwd=outside)
    assert done.stdout == ""


async def test_only_the_listed_roots_can_be_read_if_a_policy_lists_them(
    backend: Backend, ws: Path, outside: Path
) -> None:
    (ws / "mine").write_text("mine\n")
    access = RestrictedReadOnlyAccess(readable_roots=[str(ws)])
    confinement = confine(ReadOnlySandboxPolicy(access=access), str(ws))
    script = f"cat {ws}/mine; cat {outside}/file; ls {outside}"
    done = await run(["/bin/sh", "-c", script], confinement, cwd=ws)
    assert done.stdout == "mine\n"


async def test_attributes_of_files_cannot_be_set(backend: Backend, ws: Path, outside: Path) -> None:
    script = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'rb') as file:\n"
        "    for number in (0x40086602, 0x401C5820, 0x40087602, 0x40806685, 0x5000940E):\n"
        "        try:\n"
        "            print(fcntl.ioctl(file, number, bytes(64)))\n"
        "        except PermissionError:\n"
        "            print('refused')\n"
    )
    done = await run([*PYTHON, script, str(outside / "file")], workspace(ws))
    assert done.stdout == 5 * "refused\n"


async def test_nothing_can_be_stored_around_the_listed_roots(backend: Backend, ws: Path) -> None:
    """Their mount points are in memory, which no limit would count."""
    access = RestrictedReadOnlyAccess(readable_roots=[str(ws)])
    policy = WorkspaceWriteSandboxPolicy(
        exclude_slash_tmp=True, exclude_tmpdir_env_var=True, read_only_access=access
    )
    confinement = confine(policy, str(ws))
    script = f"echo x > /planted; echo x > {ws.parent}/planted; echo x > mine; ls"
    done = await run(["/bin/sh", "-c", script], confinement, cwd=ws)
    assert (done.stdout, done.stderr.count("planted")) == ("mine\n", 2)


async def test_a_workspace_that_is_a_link_is_its_target(
    backend: Backend, ws: Path, tmp_path: Path
) -> None:
    (tmp_path / "alias").symlink_to(ws)
    done = await run(
        ["/bin/sh", "-c", "echo x > a"], workspace(tmp_path / "alias"), cwd=tmp_path / "alias"
    )
    assert (done.exit_code, sorted(snapshot(ws))) == (0, ["a"])


async def test_missing_roots_are_omitted(backend: Backend, ws: Path) -> None:
    done = await run(["/bin/sh", "-c", "echo x > a"], workspace(ws, ws / "none"), cwd=ws)
    assert (done.exit_code, sorted(snapshot(ws))) == (0, ["a"])


async def test_no_descriptor_of_the_owner_is_inherited(backend: Backend, ws: Path) -> None:
    with (ws / "open").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        script = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:-1])"
        done = await run([*PYTHON, script], workspace(ws))
    assert done.stdout == "[0, 1, 2]\n"


async def test_the_kernels_settings_cannot_be_written(backend: Backend, ws: Path) -> None:
    script = "v=$(cat /proc/sys/kernel/panic); echo $v > /proc/sys/kernel/panic || echo refused"
    done = await run(["/bin/sh", "-c", script], workspace(ws))
    assert done.stdout == "refused\n"


async def test_even_a_workspace_of_everything_does_not_open_the_kernel(
    bubblewrap: Backend, outside: Path
) -> None:
    files = AdditionalFileSystemPermissions(write=["/"])
    granted = [AdditionalPermissionProfile(file_system=files)]
    confinement = confine(ReadOnlySandboxPolicy(), "/", granted=granted)
    script = (
        f"echo x > {outside}/new; v=$(cat /proc/sys/kernel/panic); "
        "echo $v > /proc/sys/kernel/panic || echo refused"
    )
    done = await run(["/bin/sh", "-c", script], confinement)
    assert done.stdout == "refused\n"
    assert (outside / "new").exists()


OPENED = """
import os
for path in (
    "/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness", "/proc/1/oom_score_adj",
    "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/uevent_helper", "/dev/kmsg",
    "/dev/loop-control", "/dev/mem", *[f"/dev/{disk}" for disk in os.listdir("/sys/class/block")],
):
    try:
        os.close(os.open(path, os.O_WRONLY))
        print(path)
    except OSError:
        pass
open("/dev/null", "w").close()
"""


@pytest.mark.parametrize("root", ["/", "/proc", "/sys/kernel"])
async def test_no_root_opens_the_kernel_for_writing(
    backend: Backend, outside: Path, root: str
) -> None:
    """Its settings name programs that run outside; a root user without privileges owns them."""
    policy = WorkspaceWriteSandboxPolicy(writable_roots=[root])
    confinement = confine(policy, str(outside))
    done = await run([*PYTHON, OPENED], confinement, cwd=outside)
    assert (done.stdout, done.stderr) == ("", "")
    # Patches, too.
    assert not confinement.may_write("/proc/sys/kernel/core_pattern")
    assert not confinement.may_write("/sys/kernel/new")


async def test_a_missing_program_is_an_error_at_once(backend: Backend, ws: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        await run(["no-such-program"], workspace(ws))


async def test_a_missing_folder_is_an_error_at_once(backend: Backend, ws: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        await run(["true"], workspace(ws), cwd=ws / "nowhere")


async def test_a_link_in_place_of_a_protected_folder_is_refused_with_a_reason(
    bubblewrap: Backend, ws: Path, outside: Path
) -> None:
    (ws / ".codex").symlink_to(outside)
    with pytest.raises(SandboxUnavailable) as refused:
        await run(["true"], workspace(ws))
    assert refused.value.reason == (
        f"{ws}/.codex is a link, which a command could replace by its own folder"
    )
