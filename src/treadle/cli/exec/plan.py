"""What `treadle exec` is to do, and under which settings: read before anything is begun."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from treadle.cli.exec.prompt import ExecError, read_prompt
from treadle.config.configuration import Configuration
from treadle.config.credentials import CredentialStore
from treadle.config.effective import EffectiveConfig
from treadle.config.file import ConfigError, Overrides, load_config, read_toml
from treadle.config.layers import absolute_paths
from treadle.config.providers import choose_model
from treadle.config.settings import ConfigValues
from treadle.engine.project.git import read_git_info
from treadle.protocol.base import JsonValue
from treadle.protocol.review import (
    BaseBranchReviewTarget,
    CommitReviewTarget,
    CustomReviewTarget,
    ReviewTarget,
    UncommittedChangesReviewTarget,
)
from treadle.server.handshake import home_folder

KEY: Final = "CODEX_API_KEY"
_ROOTS: Final = "sandbox_workspace_write.writable_roots"


@dataclass(frozen=True)
class ExecPlan:
    """One piece of work, ready to be begun."""

    given: Namespace
    configuration: Configuration
    settings: EffectiveConfig
    cwd: Path
    # None: there is nothing to say, a fork alone is wanted, or a review.
    prompt: str | None = None
    images: tuple[Path, ...] = ()
    output_schema: JsonValue = None
    review: ReviewTarget | None = None
    is_never_asked: bool = True

    @property
    def sandbox(self) -> str | None:
        """The sandbox mode, unless a permission profile takes its place."""
        return None if self.settings.permission_profile() else self.settings.sandbox_mode


class GivenKey(CredentialStore):
    """Credentials of one run: the key that it was started with counts before any other."""

    def __init__(self, home: Path, environ: Mapping[str, str], key: str) -> None:
        super().__init__(home, environ)
        self._given = key

    @property
    def api_key(self) -> str | None:
        """The key of OpenAI."""
        return self._given


def plan(given: Namespace, environ: Mapping[str, str] = os.environ) -> ExecPlan:
    """Read all that the command line names.

    Raises:
        ExecError: something of it is not to be had.
    """
    cwd = _folder(given.cd or ".")
    configuration, settings = _configure(given, cwd, environ)
    prompt, review = _prompt(given), None
    if given.command == "review":
        prompt, review = None, _target(given, prompt)
    is_confined = not given.dangerously_bypass_approvals_and_sandbox
    if is_confined and not given.skip_git_repo_check and read_git_info(str(cwd)) is None:
        message = "Not inside a trusted directory and --skip-git-repo-check was not specified."
        raise ExecError(message)
    names = [name for each in given.image for name in each.split(",")]
    return ExecPlan(
        given,
        configuration,
        settings,
        cwd,
        prompt=prompt,
        images=tuple(Path(name).resolve() for name in names),
        output_schema=_schema(given.output_schema),
        review=review,
        is_never_asked=not given.approve_for_me,
    )


def _folder(name: str) -> Path:
    try:
        folder = Path(name).resolve(strict=True)
    except OSError as error:
        message = f"Error: cannot work in {name}: {error.strerror}"
        raise ExecError(message) from error
    if not folder.is_dir():
        message = f"Error: cannot work in {name}: not a folder"
        raise ExecError(message)
    return folder


def _configure(
    given: Namespace, cwd: Path, environ: Mapping[str, str]
) -> tuple[Configuration, EffectiveConfig]:
    home = Path(home_folder(environ))
    key = environ.get(KEY)
    credentials = GivenKey(home, environ, key) if key else None
    try:
        overrides = _overrides(given, home)
        if given.strict_config:
            load_config(home, overrides, is_strict=True)
        configuration = Configuration(home, overrides, environ, credentials=credentials)
        settings = configuration.effective(str(cwd))
        more = _chosen_later(given, settings)
        if more:
            overrides = Overrides({**overrides.values, **more})
            configuration = Configuration(home, overrides, environ, credentials=credentials)
            settings = configuration.effective(str(cwd))
    except ConfigError as error:
        message = f"Error loading config.toml: {error}"
        raise ExecError(message) from error
    return configuration, settings


def _overrides(given: Namespace, home: Path) -> Overrides:
    """The profile under `-c`, and that under the options with names of their own."""
    profile: dict[str, JsonValue] = {}
    if given.profile is not None:
        file = home / f"{given.profile}.config.toml"
        profile = absolute_paths(read_toml(file), home) if file.exists() else {}
        profile = profile or {"profile": given.profile}
    assigned = Overrides.parse(given.config, enable=given.enable, disable=given.disable)
    named: dict[str, JsonValue] = {"model": given.model, "sandbox_mode": _mode(given)}
    if given.approve_for_me:
        named["approvals_reviewer"] = "auto_review"
    named = {name: value for name, value in named.items() if value is not None}
    return Overrides({**profile, **assigned.values, **named})


def _mode(given: Namespace) -> str | None:
    if given.dangerously_bypass_approvals_and_sandbox:
        return "danger-full-access"
    if given.full_auto or given.approve_for_me:
        return "workspace-write"
    mode: str | None = given.sandbox
    return mode


def _chosen_later(given: Namespace, settings: EffectiveConfig) -> dict[str, JsonValue]:
    """What can only be said once the files were read."""
    more: dict[str, JsonValue] = {}
    if given.add_dir:
        write = settings.sandbox_workspace_write
        known = [] if write is None else list(write.writable_roots)
        more[_ROOTS] = known + [str(Path(each).resolve()) for each in given.add_dir]
    if given.oss:
        provider = given.local_provider or settings.raw.get("oss_provider")
        if provider is None:
            message = (
                "Error: No default OSS provider configured. Use --local-provider=provider or set "
                "oss_provider to one of: lmstudio, ollama in config.toml"
            )
            raise ExecError(message)
        more["model_provider"] = provider
        if given.model is None:
            more["model"] = choose_model(ConfigValues(), provider)
    return more


def _prompt(given: Namespace) -> str | None:
    if given.command == "review":
        text = read_prompt("-", takes_more=False).strip() if given.prompt == "-" else given.prompt
        return text or None
    if given.command == "fork" and given.prompt is None:
        return None
    return read_prompt(given.prompt, takes_more=given.command is None)


def _target(given: Namespace, instructions: str | None) -> ReviewTarget:
    if given.uncommitted:
        return UncommittedChangesReviewTarget()
    if given.base is not None:
        return BaseBranchReviewTarget(given.base)
    if given.commit is not None:
        return CommitReviewTarget(given.commit, given.title)
    if instructions is not None:
        return CustomReviewTarget(instructions)
    message = (
        "Error: Specify --uncommitted, --base, --commit, or provide custom review instructions"
    )
    raise ExecError(message)


def _schema(name: str | None) -> JsonValue:
    if name is None:
        return None
    try:
        return msgspec.json.decode(Path(name).read_bytes())
    except OSError as error:
        message = f"Failed to read output schema file {name}: {error.strerror}"
        raise ExecError(message) from error
    except ValueError as error:
        message = f"Output schema file {name} is not valid JSON: {error}"
        raise ExecError(message) from error
