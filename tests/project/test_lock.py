"""The lock files hold every tool of development, exactly and for every Python that we support."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = {"requirements-dev.lock": "dev", "requirements-docs.lock": "docs"}
PYTHONS = ("3.11.0", "3.11.14", "3.12.0", "3.12.3", "3.13.0", "3.14.0")


def locked(name: str) -> list[tuple[Requirement, list[str]]]:
    """Each entry of a lock file with its hashes."""
    text = re.sub(r"^#.*\n", "", (ROOT / name).read_text(), flags=re.MULTILINE)
    entries = text.replace("\\\n", " ").splitlines()
    return [
        (Requirement(entry.split(" --hash=")[0]), entry.split(" --hash=")[1:]) for entry in entries
    ]


def applies(marker: Marker | None, python: str) -> bool:
    """True where the marker holds for this Python on Linux."""
    environment = {
        "python_version": ".".join(python.split(".")[:2]),
        "python_full_version": python,
        "sys_platform": "linux",
    }
    return marker is None or marker.evaluate(environment)


@pytest.mark.parametrize("name", LOCKS)
def test_each_entry_has_one_version_and_its_hashes(name: str) -> None:
    """Ours: what is installed does not depend on the day or on the package index."""
    for requirement, hashes in locked(name):
        assert [specifier.operator for specifier in requirement.specifier] == ["=="], requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}\s*", value) for value in hashes), requirement


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_names_no_package_index(name: str) -> None:
    """Ours: a mirror of the machine that made the file is not written into it."""
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert not re.search(r"^--|^-[a-z]\b", text, flags=re.MULTILINE)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", LOCKS)
def test_requirements_of_the_project_are_locked(name: str, python: str) -> None:
    """After a change of pyproject.toml, `make lock` brings the lock files up to date."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"][LOCKS[name]]]
    versions = {
        canonicalize_name(requirement.name): next(iter(requirement.specifier)).version
        for requirement, _ in locked(name)
        if applies(requirement.marker, python)
    }
    for requirement in map(Requirement, wanted):
        if applies(requirement.marker, python):
            assert versions.get(canonicalize_name(requirement.name), "0") in requirement.specifier
