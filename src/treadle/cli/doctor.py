"""`treadle doctor`: reports what works on this machine, with causes and fixes."""

from __future__ import annotations

import asyncio
import platform
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

import treadle
from treadle.config.configuration import Configuration
from treadle.config.effective import EffectiveConfig
from treadle.config.file import ConfigError, Overrides
from treadle.sandbox.backends.bubblewrap_program import find_bubblewrap
from treadle.sandbox.backends.probe import ProbeResult, findings
from treadle.sandbox.sandbox import Sandbox
from treadle.support.home import home_folder
from treadle.support.text.terminal import prose

_WIDTH: Final = 12


class BackendReport(msgspec.Struct, frozen=True, rename="camel"):
    """The probe result of one sandbox backend."""

    name: str
    works: bool
    refused: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    reason: str | None = None
    fix: str | None = None


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """The result of the examination."""

    version: str
    python: str
    system: str
    home: str
    model: str | None
    model_provider: str | None
    config_error: str | None
    bubblewrap_version: str | None
    # The backend of commands; "none": sandboxed commands are refused.
    sandbox: str
    backends: list[BackendReport]

    @property
    def is_healthy(self) -> bool:
        """Whether a sandbox backend works and the configuration is valid."""
        return self.sandbox != "none" and self.config_error is None


def doctor(assignments: list[str], *, as_json: bool) -> int:
    """Examine the machine and print the report; return 1 if it is not healthy."""
    report = asyncio.run(_examine(assignments))
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        _print(report)
    return 0 if report.is_healthy else 1


async def _examine(assignments: list[str]) -> Report:
    home = home_folder()
    model = provider = error = None
    protects = False
    try:
        effective = _effective(home, assignments)
        model, provider = effective.model, effective.model_provider
        protects = effective.sandbox is not None and effective.sandbox.landlock_protects
    except ConfigError as refused:
        error = str(refused)
    sandbox = Sandbox()
    try:
        results = findings(sandbox.launcher, landlock_protects=protects, folder=Path(home))
        backends = [_backend(result) async for result in results]
    finally:
        await sandbox.close()
    return Report(
        version=treadle.__version__,
        python=f"{platform.python_version()} ({sys.executable})",
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        home=home,
        model=model,
        model_provider=provider,
        config_error=error,
        bubblewrap_version=_bubblewrap_version(),
        sandbox=next((backend.name for backend in backends if backend.works), "none"),
        backends=backends,
    )


def _effective(home: str, assignments: list[str]) -> EffectiveConfig:
    overrides = Overrides.parse(assignments)
    return Configuration(Path(home), overrides).effective(str(Path.cwd()))


def _backend(finding: ProbeResult) -> BackendReport:
    return BackendReport(
        name=finding.name,
        works=finding.backend is not None,
        refused=finding.refused,
        gaps=finding.gaps,
        reason=finding.reason or None,
        fix=finding.fix or None,
    )


def _bubblewrap_version() -> str | None:
    program = find_bubblewrap()
    if program is None:
        return None
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip().removeprefix("bubblewrap ") or None


def _print(report: Report) -> None:
    _line("treadle", report.version)
    _line("python", report.python)
    _line("system", report.system)
    _line("home", report.home)
    if report.config_error is None:
        _line("model", f"{report.model} (provider {report.model_provider})")
    else:
        _line("config", f"cannot be used: {report.config_error}")
    _line("bubblewrap", report.bubblewrap_version or "not installed")
    _line("sandbox", report.sandbox)
    for backend in report.backends:
        _print_backend(backend, is_chosen=backend.name == report.sandbox)
    if report.sandbox == "none":
        print("\nNo sandbox works here: commands that need one are refused.")


def _print_backend(backend: BackendReport, *, is_chosen: bool) -> None:
    print()
    state = "works" if backend.works else "does not work"
    _line(backend.name, state + (", and is used" if is_chosen else ""))
    if backend.reason:
        _line("", f"cause: {backend.reason}")
    if backend.fix:
        _line("", f"fix:   {backend.fix}")
    if backend.works:
        _line("", f"attempted and refused: {', '.join(backend.refused)}")
    for gap in backend.gaps:
        _line("", f"limit: {gap}")


def _line(title: str, text: str) -> None:
    print(f"{title:{_WIDTH}}{prose(text)}")
