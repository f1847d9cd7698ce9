"""For any layout of folders, links, roots and homes, whatever controls the sandbox is protected.

Random layouts are built on disk. The boundary is queried about every protected path, and for some
of the layouts a command really tries to change them, under each backend.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.attempts import attempts, look_at
from tests.harness.sandbox import findings, using
from tests.sandbox.commands import run
from treadle.protocol.permission import AdditionalFileSystemPermissions, AdditionalPermissionProfile
from treadle.protocol.policy import WorkspaceWriteSandboxPolicy
from treadle.sandbox.backends.selection import Backend, SandboxUnavailable
from treadle.sandbox.boundary import Boundary
from treadle.sandbox.opened_roots import OpenedRoots
from treadle.sandbox.paths import links
from treadle.sandbox.policy import Confinement
from treadle.sandbox.protection import OPENABLE, Protection

NAMES = ("a", "b", "worktrees", "rules", ".codex")
paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)
places = st.one_of(st.just("."), paths)


@dataclass(frozen=True)
class Layout:
    """All paths, below one folder; a path may be missing, or lead through links."""

    folders: list[str]
    links: list[tuple[str, str]]
    homes: list[str]
    closed: list[str]
    reserved: list[str]
    trusted: list[str]
    cwd: str
    roots: list[str]
    granted: list[str]


layouts = st.builds(
    Layout,
    folders=st.lists(paths, min_size=2, max_size=6),
    links=st.lists(st.tuples(paths, places), max_size=3),
    homes=st.lists(paths, min_size=1, max_size=2),
    closed=st.lists(paths, max_size=2),
    reserved=st.lists(paths, max_size=1),
    trusted=st.lists(places, max_size=2),
    cwd=places,
    roots=st.lists(places, max_size=3),
    granted=st.lists(places, max_size=2),
)


class Scene:
    """A layout on disk, and the boundary for it."""

    def __init__(self, top: Path, layout: Layout) -> None:
        self.top = top
        for place, target in layout.links:
            self._link(top / place, top / target)
        for place in (*layout.folders, *layout.homes, *layout.closed):
            self._furnish(top / place)
        self.homes = [str(top / place) for place in layout.homes]
        self.closed = [str(top / place) for place in layout.closed]
        self.reserved = [str(top / place) for place in layout.reserved]
        trusted = [str(top / place) for place in layout.trusted]
        protection = Protection(
            homes=self.homes, closed=self.closed, reserved=self.reserved, trusted=lambda: trusted
        )
        policy = WorkspaceWriteSandboxPolicy(
            exclude_slash_tmp=True,
            exclude_tmpdir_env_var=True,
            writable_roots=[str(top / place) for place in layout.roots],
        )
        files = AdditionalFileSystemPermissions(write=[str(top / each) for each in layout.granted])
        self.confinement: Confinement = Boundary(
            protection, OpenedRoots(top.parent / "record")
        ).confine(
            policy, str(top / layout.cwd), granted=[AdditionalPermissionProfile(file_system=files)]
        )

    def protected(self) -> Iterator[str]:
        """Return every path that must not be writable, spelled as configured."""
        for home in self.homes:
            for name in ("", "config.toml", "rules", "rules/default.rules", "new"):
                yield os.path.join(home, name) if name else home  # noqa: PTH118 - text
        for path in self.closed:
            yield path
            place = os.path.realpath(path)
            for name in ("config.toml", "rules/default.rules", "new"):
                # Links in a folder of code are not resolved; those in a home are.
                if os.path.realpath(f"{path}/{name}").startswith(f"{place}/"):
                    yield f"{path}/{name}"
        yield from self.reserved
        for path in (*self.homes, *self.closed, *self.reserved):
            yield from links(path)

    def is_excused(self, path: str) -> bool:
        """Return whether it may be opened: in some folders of a home, and below a reserved one."""
        place = os.path.realpath(path)
        homes = [os.path.realpath(home) for home in self.homes]
        others = [os.path.realpath(each) for each in (*self.closed, *self.reserved)]
        if any(place == each for each in (*homes, *others)):
            return False
        if any(place.startswith(f"{each}/") for each in map(os.path.realpath, self.closed)):
            return False
        inner = [place[len(home) + 1 :] for home in homes if place.startswith(f"{home}/")]
        if not inner:
            # A reserved folder cannot be opened itself, but one below it can.
            reserved = map(os.path.realpath, self.reserved)
            return any(place.startswith(f"{each}/") for each in reserved)
        return all(rest.split("/")[0] in OPENABLE for rest in inner)

    @staticmethod
    def _link(place: Path, target: Path) -> None:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(target)
        except OSError:
            return  # the path exists already, or a link is circular

    @staticmethod
    def _furnish(folder: Path) -> None:
        try:
            (folder / "rules").mkdir(parents=True, exist_ok=True)
            for name in ("config.toml", "rules/default.rules"):
                (folder / name).write_text("precious")
        except OSError:
            return


@contextmanager
def on_disk(layout: Layout) -> Iterator[Scene]:
    with TemporaryDirectory(prefix="treadle-layout-") as name:
        top = Path(name).resolve() / "top"
        top.mkdir()
        yield Scene(top, layout)


@settings(max_examples=250, deadline=None, database=None)
@given(layouts)
def test_nothing_that_controls_the_sandbox_is_writable(layout: Layout) -> None:
    with on_disk(layout) as scene:
        for path in scene.protected():
            if not scene.is_excused(path):
                assert not scene.confinement.may_write(path), path


@pytest.fixture(scope="module")
def working() -> dict[str, Backend]:
    async def find() -> dict[str, Backend]:
        return {f.name: f.backend async for f in findings() if f.backend is not None}

    return asyncio.run(find())


@settings(
    max_examples=12,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
@given(layout=layouts)
def test_no_command_changes_what_controls_the_sandbox(
    working: dict[str, Backend], name: str, layout: Layout
) -> None:
    if name not in working:
        pytest.skip(f"{name} does not work here")
    with on_disk(layout) as scene, using(working[name]):
        _attack(scene, has_modes=name != "landlock")


def _attack(scene: Scene, *, has_modes: bool) -> None:
    paths = [path for path in scene.protected() if not scene.is_excused(path)]
    # Landlock cannot prevent a command from creating what is missing.
    paths = [path for path in paths if has_modes or os.path.lexists(path)]
    before = _seen(scene, paths, has_modes=has_modes)
    roots = [Path(root.path) for root in scene.confinement.writable if Path(root.path).is_dir()]
    for root in roots or [scene.top]:
        try:
            asyncio.run(run(attempts(root, paths), scene.confinement, cwd=Path("/")))
        except SandboxUnavailable:
            continue  # refused: nothing ran
        assert _seen(scene, paths, has_modes=has_modes) == before


def _seen(scene: Scene, paths: list[str], *, has_modes: bool) -> dict[str, object]:
    states = look_at(paths, modes=has_modes)
    return {path: look for path, look in states.items() if not scene.is_excused(path)}
