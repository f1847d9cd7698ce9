"""The confinement that a policy means in one folder, as a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandbox.commands import confine
from treadle.protocol.permission import (
    AdditionalFileSystemPermissions,
    AdditionalNetworkPermissions,
    AdditionalPermissionProfile,
    FileSystemPath,
    FileSystemSandboxEntry,
    GlobPatternFileSystemPath,
    KindFileSystemSpecialPath,
    PathFileSystemPath,
    RootFileSystemSpecialPath,
    SlashTmpFileSystemSpecialPath,
    SpecialFileSystemPath,
    TmpdirFileSystemSpecialPath,
    UnknownFileSystemSpecialPath,
)
from treadle.protocol.policy import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxSandboxPolicy,
    FullAccessReadOnlyAccess,
    ReadOnlySandboxPolicy,
    RestrictedReadOnlyAccess,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from treadle.sandbox.policy import (
    PLATFORM_FOLDERS,
    PROTECTED,
    UNRESTRICTED,
    Confinement,
    WritableRoot,
)


def root(path: object, *more: object) -> WritableRoot:
    """Return a writable folder with all its protected paths."""
    return WritableRoot(str(path), (*(f"{path}/{name}" for name in PROTECTED), *map(str, more)))


def granting(path: FileSystemPath, access: str = "write") -> AdditionalPermissionProfile:
    assert access in ("write", "deny")
    entry = FileSystemSandboxEntry(access="write" if access == "write" else "deny", path=path)
    files = AdditionalFileSystemPermissions(entries=[entry])
    return AdditionalPermissionProfile(file_system=files)


@pytest.mark.parametrize(
    "policy", [DangerFullAccessSandboxPolicy(), ExternalSandboxSandboxPolicy()]
)
def test_full_access_and_an_external_sandbox_confine_nothing(policy: SandboxPolicy) -> None:
    assert confine(policy, "/") == UNRESTRICTED


def test_read_only_opens_nothing(ws: Path) -> None:
    assert confine(ReadOnlySandboxPolicy(), str(ws)) == Confinement()
    assert confine(ReadOnlySandboxPolicy(network_access=True), str(ws)) == Confinement(network=True)


def test_a_workspace_opens_the_folder_the_roots_and_temporary_folders(
    ws: Path, outside: Path, tmp_path: Path
) -> None:
    policy = WorkspaceWriteSandboxPolicy(writable_roots=[str(outside)])
    result = confine(policy, str(ws), environ={"TMPDIR": str(tmp_path)})
    assert result == Confinement((root(ws), root(outside), root("/tmp"), root(tmp_path)))  # noqa: S108 - the folder that is meant


@pytest.mark.parametrize("tmpdir", ["", "relative"])
def test_a_tmpdir_that_is_not_a_path_opens_nothing(ws: Path, tmpdir: str) -> None:
    policy = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True)
    assert confine(policy, str(ws), environ={"TMPDIR": tmpdir}) == Confinement((root(ws),))


def test_links_are_resolved(ws: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(ws)
    policy = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
    assert confine(policy, str(tmp_path / "alias")) == Confinement((root(ws),))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PathFileSystemPath("sub"), ["{ws}/sub"]),
        (PathFileSystemPath("/usr/lib/ssl"), ["/usr/lib/ssl"]),
        (SpecialFileSystemPath(RootFileSystemSpecialPath()), ["/"]),
        (SpecialFileSystemPath(SlashTmpFileSystemSpecialPath()), ["/tmp"]),  # noqa: S108 - the folder that is meant
        (SpecialFileSystemPath(TmpdirFileSystemSpecialPath()), ["{ws}/tmp"]),
        (SpecialFileSystemPath(KindFileSystemSpecialPath()), ["{ws}"]),
        (SpecialFileSystemPath(KindFileSystemSpecialPath(subpath="a")), ["{ws}/a"]),
        (SpecialFileSystemPath(UnknownFileSystemSpecialPath(path=":new")), []),
        (GlobPatternFileSystemPath("*.log"), ["{ws}/1.log", "{ws}/2.log"]),
    ],
)
def test_granted_places_are_opened(ws: Path, path: FileSystemPath, expected: list[str]) -> None:
    for name in ("1.log", "2.log"):
        (ws / name).write_text("")
    environ = {"TMPDIR": str(ws / "tmp")}
    result = confine(ReadOnlySandboxPolicy(), str(ws), environ=environ, granted=[granting(path)])
    assert sorted(r.path for r in result.writable) == [p.format(ws=ws) for p in expected]


def test_a_grant_of_the_network_opens_it(ws: Path) -> None:
    for enabled in (True, False, None):
        network = AdditionalNetworkPermissions(enabled=enabled)
        granted = [AdditionalPermissionProfile(network=network)]
        result = confine(ReadOnlySandboxPolicy(), str(ws), granted=granted)
        assert result == Confinement(network=bool(enabled))


def test_a_grant_in_the_older_spelling_opens_the_same(ws: Path, outside: Path) -> None:
    files = AdditionalFileSystemPermissions(write=[str(outside)], read=["/etc"])
    granted = [AdditionalPermissionProfile(file_system=files)]
    result = confine(ReadOnlySandboxPolicy(), str(ws), granted=granted)
    assert result == Confinement((root(outside),))


def test_a_policy_that_lists_readable_paths_opens_no_others(ws: Path, outside: Path) -> None:
    access = RestrictedReadOnlyAccess(readable_roots=[str(outside)])
    policy = WorkspaceWriteSandboxPolicy(
        exclude_slash_tmp=True, exclude_tmpdir_env_var=True, read_only_access=access
    )
    expected = (*PLATFORM_FOLDERS, str(outside), str(ws))
    assert confine(policy, str(ws)).readable == expected
    everything = ReadOnlySandboxPolicy(access=FullAccessReadOnlyAccess())
    assert confine(everything, str(ws)).readable is None


def test_the_repository_behind_a_pointer_is_protected_where_it_would_be_writable(
    ws: Path, outside: Path
) -> None:
    repository = outside / "folder"
    (ws / ".git").write_text(f"gitdir: {repository}\n")
    policy = WorkspaceWriteSandboxPolicy(
        exclude_slash_tmp=True, exclude_tmpdir_env_var=True, writable_roots=[str(outside)]
    )
    assert confine(policy, str(ws)) == Confinement((root(ws, repository), root(outside)))


@pytest.fixture
def confinement(ws: Path, outside: Path) -> Confinement:
    policy = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
    denied = granting(PathFileSystemPath(str(ws / "secret")), "deny")
    (ws / "link").symlink_to(outside)
    (ws / "inner").symlink_to(ws / ".git")
    (outside / "back").symlink_to(ws)
    return confine(policy, str(ws), granted=[denied])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("new", True),
        ("new/deep/file", True),
        ("../ws/new", True),
        ("../outside/file", False),
        ("../outside/back/new", True),
        ("link", False),
        ("link/file", False),
        ("link/new", False),
        (".git", False),
        (".git/config", False),
        ("inner/config", False),
        ("sub/../.codex/config.toml", False),
        (".github/workflows", True),
        ("sub/.git/config", True),
        ("secret", False),
        ("secret/inside", False),
        ("/etc/passwd", False),
    ],
)
def test_may_write_follows_links_and_dots(
    confinement: Confinement, ws: Path, path: str, expected: bool
) -> None:
    assert confinement.may_write(str(ws / path)) is expected


def test_without_a_sandbox_everything_may_be_written() -> None:
    assert UNRESTRICTED.may_write("/etc/passwd")


def test_a_root_inside_a_protected_folder_is_writable(ws: Path) -> None:
    policy = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True)
    result = confine(policy, str(ws), environ={"TMPDIR": str(ws / ".codex" / "tmp")})
    assert result.may_write(str(ws / ".codex" / "tmp" / "x"))
    assert not result.may_write(str(ws / ".codex" / "x"))
