"""The task of `treadle exec` with its settings, read before the work starts."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from treadle.accounts.credentials import CredentialStore
from treadle.cli.exec.prompt import ExecError, read_prompt
from treadle.config.configuration import Configuration
from treadle.config.effective import EffectiveConfig
from treadle.config.file import ConfigError, Overrides, load_config, read_toml
from treadle.config.layers import absolute_paths
from treadle.config.providers import choose_model
from treadle.config.settings import ConfigValues
from treadle.engine.project.git import is_in_repository
from treadle.protocol.base import JsonValue
from treadle.protocol.review import (
    BaseBranchReviewTarget,
    CommitReviewTarget,
    CustomReviewTarget,
    ReviewTarget,
    UncommittedChangesReviewTarget,
)
from treadle.support.home import home_folder

KEY: Final = "CODEX_API_KEY"
_MAX_SCHEMA: Final = 16 * 1024 * 1024
_ROOTS: Final = "sandbox_workspace_write.writable_roots"


@dataclass(frozen=True)
class ExecTask:
    """One task, ready to start."""

    args: Namespace
    configuration: Configuration
    settings: EffectiveConfig
    cwd: Path
    # None: a fork without a turn, or a review.
    prompt: str | None = None
    images: tuple[Path, ...] = ()
    output_schema: JsonValue = None
    review: ReviewTarget | None = None
    never_asks: bool = True

    @property
    def sandbox(self) -> str | None:
        """The sandbox mode, unless a permission profile takes its place."""
        return None if self.settings.permission_profile() else self.settings.sandbox_mode


def read_task(args: Namespace, environ: Mapping[str, str] = os.environ) -> ExecTask:
    """Read the prompt, the configuration and the files that the command line names.

    Raises:
        ExecError: one of them is missing or invalid.
    """
    cwd = _folder(args.cd or ".")
    configuration, settings = _configure(args, cwd, environ)
    prompt, review = _prompt(args), None
    if args.command == "review":
        prompt, review = None, _target(args, prompt)
    is_confined = not args.dangerously_bypass_approvals_and_sandbox
    if is_confined and not args.skip_git_repo_check and not is_in_repository(str(cwd)):
        message = "Not inside a trusted directory and --skip-git-repo-check was not specified."
        raise ExecError(message)
    names = [name for each in args.image for name in each.split(",")]
    return ExecTask(
        args,
        configuration,
        settings,
        cwd,
        prompt=prompt,
        images=tuple(Path(name).resolve() for name in names),
        output_schema=_schema(args.output_schema),
        review=review,
        never_asks=not args.approve_for_me,
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
    args: Namespace, cwd: Path, environ: Mapping[str, str]
) -> tuple[Configuration, EffectiveConfig]:
    home = Path(home_folder(environ))
    key = environ.get(KEY)
    configured = partial(
        Configuration,
        home,
        environ=environ,
        # The key of a run precedes stored logins.
        credentials=CredentialStore(home, environ, key=key) if key else None,
        bypasses_hook_trust=args.dangerously_bypass_hook_trust,
    )
    try:
        overrides = _overrides(args, home)
        if args.strict_config:
            load_config(home, overrides, is_strict=True)
        configuration = configured(overrides)
        settings = configuration.effective(str(cwd))
        more = _late_overrides(args, settings)
        if more:
            overrides = Overrides({**overrides.values, **more})
            configuration = configured(overrides)
            settings = configuration.effective(str(cwd))
    except ConfigError as error:
        message = f"Error loading config.toml: {error}"
        raise ExecError(message) from error
    return configuration, settings


def _overrides(args: Namespace, home: Path) -> Overrides:
    """Merge the profile, `-c` and the named options; later ones win."""
    profile: dict[str, JsonValue] = {}
    if args.profile is not None:
        file = home / f"{args.profile}.config.toml"
        profile = absolute_paths(read_toml(file), home) if file.exists() else {}
        profile = profile or {"profile": args.profile}
    assignments = Overrides.parse(args.config, enable=args.enable, disable=args.disable)
    options: dict[str, JsonValue] = {"model": args.model, "sandbox_mode": _mode(args)}
    if args.approve_for_me:
        options["approvals_reviewer"] = "auto_review"
    options = {name: value for name, value in options.items() if value is not None}
    return Overrides({**profile, **assignments.values, **options})


def _mode(args: Namespace) -> str | None:
    if args.dangerously_bypass_approvals_and_sandbox:
        return "danger-full-access"
    if args.full_auto or args.approve_for_me:
        return "workspace-write"
    mode: str | None = args.sandbox
    return mode


def _late_overrides(args: Namespace, settings: EffectiveConfig) -> dict[str, JsonValue]:
    """Return the overrides that depend on the configuration files."""
    more: dict[str, JsonValue] = {}
    if args.add_dir:
        write = settings.sandbox_workspace_write
        roots = [] if write is None else list(write.writable_roots)
        more[_ROOTS] = roots + [str(Path(each).resolve()) for each in args.add_dir]
    if args.oss:
        provider = args.local_provider or settings.raw.get("oss_provider")
        if provider is None:
            message = (
                "Error: No default OSS provider configured. Use --local-provider=provider or set "
                "oss_provider to one of: lmstudio, ollama in config.toml"
            )
            raise ExecError(message)
        more["model_provider"] = provider
        if args.model is None:
            more["model"] = choose_model(ConfigValues(), provider)
    return more


def _prompt(args: Namespace) -> str | None:
    if args.command == "review":
        text = read_prompt("-", takes_more=False).strip() if args.prompt == "-" else args.prompt
        return text or None
    if args.command == "fork" and args.prompt is None:
        return None
    return read_prompt(args.prompt, takes_more=args.command is None)


def _target(args: Namespace, instructions: str | None) -> ReviewTarget:
    if args.uncommitted:
        return UncommittedChangesReviewTarget()
    if args.base is not None:
        return BaseBranchReviewTarget(args.base)
    if args.commit is not None:
        return CommitReviewTarget(args.commit, args.title)
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
        # Not only files: a shell passes the output of a program as a pipe.
        with Path(name).open("rb") as file:
            data = file.read(_MAX_SCHEMA + 1)
        if len(data) > _MAX_SCHEMA:
            message = f"Output schema file {name} is larger than {_MAX_SCHEMA} bytes"
            raise ExecError(message)
        return msgspec.json.decode(data)
    except OSError as error:
        message = f"Failed to read output schema file {name}: {error.strerror}"
        raise ExecError(message) from error
    except (ValueError, RecursionError) as error:
        message = f"Output schema file {name} is not valid JSON: {error}"
        raise ExecError(message) from error
