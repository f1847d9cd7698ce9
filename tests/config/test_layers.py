"""Layers of configuration, and the settings that result from them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.server.serving import configuration
from treadle.config.configuration import Configuration
from treadle.config.effective import EffectiveConfig
from treadle.config.file import ConfigError, Overrides, load_config
from treadle.model.catalog import SCRIPTED_MODEL
from treadle.protocol.policy import (
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)


class Workspace(NamedTuple):
    """A repository with a folder in it, and a home beside it."""

    home: Path
    root: Path
    inner: Path

    def trusting(self, text: str = "", *flags: str) -> Configuration:
        """Return a configuration that trusts the repository."""
        return configuration(self.home, f"{text}\n{trust(self.root, 'trusted')}", *flags)


def trust(folder: Path, level: str) -> str:
    return f'[projects."{folder}"]\ntrust_level = "{level}"\n'


def project_file(folder: Path, text: str) -> None:
    (folder / ".codex").mkdir(exist_ok=True)
    (folder / ".codex" / "config.toml").write_text(text, "utf-8")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "repository"
    inner = root / "inner"
    inner.mkdir(parents=True)
    (root / ".git").mkdir()
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return Workspace(tmp_path / "home", root, inner)


def policies(effective: EffectiveConfig) -> tuple[object, ...]:
    return effective.approval_policy, effective.approvals_reviewer, effective.sandbox_mode


class TestNothingConfigured:
    def test_the_scripted_model_is_the_default_on_a_new_machine(self, home: Path) -> None:
        effective = configuration(home).effective()

        assert (effective.model_provider, effective.model) == ("scripted", SCRIPTED_MODEL)

    def test_a_key_of_openai_chooses_openai(self, home: Path) -> None:
        effective = configuration(home, environ={"OPENAI_API_KEY": "sk-1"}).effective()

        assert effective.model_provider == "openai"
        assert effective.model.startswith("gpt-")

    def test_a_key_of_anthropic_chooses_anthropic(self, home: Path) -> None:
        effective = configuration(home, environ={"ANTHROPIC_API_KEY": "sk-1"}).effective()

        assert effective.model_provider == "anthropic"
        assert effective.model.startswith("claude-")

    def test_an_empty_key_does_not_count(self, home: Path) -> None:
        environ = {"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": ""}

        assert configuration(home, environ=environ).effective().model_provider == "scripted"

    def test_a_login_chooses_openai_without_a_restart(self, home: Path) -> None:
        settings = configuration(home, 'model = "m"')
        settings.credentials.sign_in("sk-1")

        assert settings.effective().model_provider == "openai"

    def test_the_scripted_model_can_be_chosen_by_name(self, home: Path) -> None:
        effective = configuration(home, f'model = "{SCRIPTED_MODEL}"').effective()

        assert effective.model_provider == "scripted"

    def test_a_model_without_a_provider_belongs_to_openai(self, home: Path) -> None:
        """The scripted model must not answer under the name of another model."""
        effective = configuration(home, 'model = "gpt-x"').effective()

        assert (effective.model_provider, effective.model) == ("openai", "gpt-x")

    def test_policies_follow_the_trust_in_the_folder(self, workspace: Workspace) -> None:
        """As upstream answers `thread/start` in folders of each kind."""
        decided = f"{trust(workspace.root, 'trusted')}\n{trust(workspace.inner, 'untrusted')}"
        settings = configuration(workspace.home, decided)

        assert policies(settings.effective()) == ("on-request", "user", "read-only")
        assert policies(settings.effective(str(workspace.root))) == (
            "on-request",
            "user",
            "workspace-write",
        )
        assert policies(settings.effective(str(workspace.inner))) == (
            "untrusted",
            "user",
            "workspace-write",
        )


class TestLayers:
    def test_each_layer_overrides_the_previous_one(self, workspace: Workspace) -> None:
        project_file(workspace.root, 'model = "root"\nmodel_verbosity = "low"')
        project_file(workspace.inner, 'model_verbosity = "medium"\nmodel_reasoning_effort = "low"')
        settings = workspace.trusting(
            'model = "user"\nservice_tier = "flex"', "model_reasoning_effort=medium"
        )

        effective = settings.effective(str(workspace.inner), {"service_tier": "fast"})

        assert (
            effective.model,
            effective.model_verbosity,
            effective.model_reasoning_effort,
            effective.service_tier,
        ) == ("root", "medium", "medium", "fast")
        assert [layer.source.__class__.__name__ for layer in effective.layers] == [
            "SystemConfigLayerSource",
            "UserConfigLayerSource",
            "ProjectConfigLayerSource",
            "ProjectConfigLayerSource",
            "SessionFlagsConfigLayerSource",
            "SessionFlagsConfigLayerSource",
        ]

    def test_tables_are_merged_and_lists_are_replaced(self, home: Path) -> None:
        text = 'notify = ["a", "b"]\n[sandbox_workspace_write]\nnetwork_access = true'
        flags = ('notify=["c"]', 'sandbox_workspace_write.writable_roots=["/x"]')

        effective = configuration(home, text, *flags).effective()

        assert effective.raw == {
            "notify": ["c"],
            "sandbox_workspace_write": {"network_access": True, "writable_roots": ["/x"]},
        }
        assert {key: layer.label for key, layer in effective.origins.items()} == {
            "notify.0": "session-flags",
            "sandbox_workspace_write.network_access": f"user ({home / 'config.toml'})",
            "sandbox_workspace_write.writable_roots.0": "session-flags",
        }

    def test_the_system_is_the_lowest_layer(self, home: Path) -> None:
        settings = configuration(home, 'model = "user"')
        (settings.system / "config.toml").write_text('model = "s"\nservice_tier = "s"', "utf-8")

        effective = settings.effective()

        assert (effective.model, effective.service_tier) == ("user", "s")

    def test_a_profile_is_below_the_command_line(self, home: Path) -> None:
        text = (
            'model = "user"\nprofile = "x"\n'
            '[profiles.x]\nmodel = "profile"\nservice_tier = "profile"'
        )

        effective = configuration(home, text, "service_tier=flag").effective()

        assert (effective.model, effective.service_tier) == ("profile", "flag")
        assert effective.origins["model"].label == f"profile x ({home / 'config.toml'})"

    def test_a_missing_profile_is_refused(self, home: Path) -> None:
        with pytest.raises(ConfigError, match="config profile `x` not found"):
            configuration(home, 'profile = "x"').effective()

    def test_a_request_may_use_dotted_keys(self, home: Path) -> None:
        effective = configuration(home).effective(None, {"features.apps": True, "model": None})

        assert effective.raw == {"features": {"apps": True}}

    def test_a_file_that_changes_is_read_again(self, workspace: Workspace) -> None:
        settings = workspace.trusting('model = "one"')
        before = settings.effective(str(workspace.root))

        assert settings.effective(str(workspace.root)) is before
        project_file(workspace.root, 'model = "three"')
        assert settings.effective(str(workspace.root)).model == "three"
        project_file(workspace.root, 'model = "seven"')
        assert settings.effective(str(workspace.root)).model == "seven"
        (workspace.home / "config.toml").unlink()
        assert settings.effective(str(workspace.root)).model == SCRIPTED_MODEL

    def test_paths_are_relative_to_the_file_that_contains_them(self, workspace: Workspace) -> None:
        project_file(workspace.root, 'model_instructions_file = "base.md"')
        (workspace.root / ".codex" / "base.md").write_text("be brief", "utf-8")
        settings = workspace.trusting('[sandbox_workspace_write]\nwritable_roots = ["more"]')

        effective = settings.effective(str(workspace.root))

        assert effective.base_instructions() == "be brief"
        assert effective.sandbox_policy("workspace-write") == WorkspaceWriteSandboxPolicy(
            writable_roots=[str(workspace.home / "more")]
        )

    def test_a_mode_selects_a_policy(self, home: Path) -> None:
        effective = configuration(home, 'sandbox_mode = "danger-full-access"').effective()

        assert effective.sandbox_policy() == DangerFullAccessSandboxPolicy()
        assert effective.sandbox_policy("read-only") == ReadOnlySandboxPolicy()

    def test_an_instructions_file_that_is_missing_is_named(self, home: Path) -> None:
        effective = configuration(home, 'model_instructions_file = "gone.md"').effective()

        with pytest.raises(ConfigError, match=r"home/gone\.md"):
            effective.base_instructions()


class TestProjects:
    def test_a_project_that_is_not_trusted_sets_nothing(self, workspace: Workspace) -> None:
        project_file(workspace.root, 'model = "project"')

        effective = configuration(workspace.home, 'model = "user"').effective(str(workspace.inner))

        assert effective.model == "user"
        ignored = effective.layers[-1]
        assert ignored.table == {}
        assert ignored.disabled_reason is not None
        assert f'projects."{workspace.root}".trust_level' in ignored.disabled_reason

    def test_a_broken_file_of_a_project_matters_only_if_it_is_trusted(
        self, workspace: Workspace
    ) -> None:
        project_file(workspace.root, "model = [")

        assert configuration(workspace.home).effective(str(workspace.root)).raw == {}
        with pytest.raises(ConfigError, match=r"repository/\.codex/config\.toml"):
            workspace.trusting().effective(str(workspace.root))

    def test_a_project_may_not_choose_where_data_goes_or_what_is_run(
        self, workspace: Workspace
    ) -> None:
        project_file(
            workspace.root,
            'model = "m"\nmodel_provider = "evil"\nnotify = ["evil"]\nopenai_base_url = "http://e"\n'
            '[model_providers.evil]\nbase_url = "http://evil"\n'
            '[projects."/"]\ntrust_level = "trusted"',
        )

        effective = workspace.trusting().effective(str(workspace.root))

        assert effective.layers[-1].table == {"model": "m"}
        assert (effective.model, effective.model_provider) == ("m", "openai")
        (warning,) = effective.warnings
        assert "model_provider, model_providers, notify, openai_base_url" in warning.summary

    def test_a_project_cannot_trust_itself(self, workspace: Workspace) -> None:
        project_file(workspace.root, f'model = "evil"\n{trust(workspace.root, "trusted")}')

        effective = configuration(workspace.home, 'model = "m"').effective(str(workspace.root))

        assert (effective.model, effective.trust) == ("m", None)

    def test_a_linked_worktree_is_trusted_with_its_repository(self, workspace: Workspace) -> None:
        linked = workspace.root.parent / "linked"
        linked.mkdir()
        inside = workspace.root / ".git" / "worktrees" / "linked"
        inside.mkdir(parents=True)
        (linked / ".git").write_text(f"gitdir: {inside}\n", "utf-8")

        assert workspace.trusting().effective(str(linked)).trust is None
        (inside / "gitdir").write_text(f"{linked / '.git'}\n", "utf-8")
        assert workspace.trusting().effective(str(linked)).trust == "trusted"

    @pytest.mark.parametrize("cwd", ["no/such", "/no/such/folder", "loop/inner", "x" * 300])
    def test_a_folder_that_cannot_be_read_has_no_project(
        self, workspace: Workspace, cwd: str
    ) -> None:
        (workspace.root / "loop").symlink_to(workspace.root / "loop")

        effective = workspace.trusting().effective(str(workspace.home / cwd))

        assert (effective.trust, len(effective.layers)) == (None, 2)

    def test_a_home_in_a_repository_is_not_read_twice(self, workspace: Workspace) -> None:
        settings = configuration(workspace.root / ".codex", trust(workspace.root, "trusted"))

        assert len(settings.effective(str(workspace.inner)).layers) == 2


class TestBadValues:
    def test_a_folder_whose_name_is_not_a_path_is_refused(self, home: Path) -> None:
        with pytest.raises(ConfigError, match="is not a path"):
            configuration(home).effective("a\0b")

    @pytest.mark.parametrize(
        ("text", "key", "expected"),
        [
            ('approval_policy = "bogus"', "approval_policy", "`untrusted`, `on-failure`"),
            ('sandbox_mode = "x"', "sandbox_mode", "`read-only`, `workspace-write`"),
            ('model_context_window = "x"', "model_context_window", "expected `int"),
            ("model = 5", "model", "expected `str"),
            ('model_verbosity = "x"', "model_verbosity", "`low`, `medium`, `high`"),
            ('[projects."/x"]\ntrust_level = "x"', "projects./x.trust_level", "`trusted`"),
        ],
    )
    def test_a_bad_value_is_named_with_its_place_and_what_was_expected(
        self, home: Path, text: str, key: str, expected: str
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            configuration(home, text).effective()

        assert caught.value.key == key
        assert expected in str(caught.value)
        assert str(caught.value).endswith(f"in user ({home / 'config.toml'})")

    @pytest.mark.parametrize("policy", ["untrusted", "on-failure", "on-request", "never"])
    def test_every_approval_policy_is_accepted(self, home: Path, policy: str) -> None:
        effective = configuration(home, f'approval_policy = "{policy}"').effective()

        assert effective.approval_policy == policy

    def test_an_unknown_provider_is_refused(self, home: Path) -> None:
        with pytest.raises(ConfigError, match="Model provider `nope` not found"):
            configuration(home).effective(None, {"model_provider": "nope"})

    def test_a_file_that_is_not_toml_is_named(self, home: Path) -> None:
        with pytest.raises(ConfigError, match=r"failed to load .*home/config\.toml"):
            configuration(home, "model = [").effective()

    def test_defaults_are_available_when_the_file_is_unusable(self, home: Path) -> None:
        effective = configuration(home, "model = [", "model=flag").lenient()

        assert effective.model == "flag"
        (warning,) = effective.warnings
        assert warning.path == str(home / "config.toml")
        assert warning.details is not None

    def test_unknown_keys_are_reported_in_one_warning(self, home: Path) -> None:
        text = (
            "one = 1\ntwo = 2\n[model_providers.p]\nbase_url = 'http://p'\nodd = 1\n"
            "[sandbox_workspace_write]\nodd = 1"
        )

        (warning,) = configuration(home, text, "three.four=1").effective().warnings

        assert warning.summary.splitlines() == [
            "5 configuration settings are not known; look for typing errors.",
            "  session-flags: `three` is ignored.",
            f"  user ({home / 'config.toml'}): `model_providers.p.odd` is ignored.",
            f"  user ({home / 'config.toml'}): `one` is ignored.",
            "  ... and 2 more.",
        ]

    def test_a_strict_command_line_refuses_unknown_keys(self, home: Path) -> None:
        (home / "config.toml").write_text("odd = 1", "utf-8")

        assert load_config(home, Overrides({"a.b": 1})) == {"odd": 1, "a": {"b": 1}}
        with pytest.raises(ConfigError, match="unknown configuration field `odd`"):
            load_config(home, Overrides({}), is_strict=True)


class TestRequirements:
    DEMANDS = (
        'allowed_approval_policies = ["on-request"]\n'
        'allowed_sandbox_modes = ["workspace-write", "read-only"]\n'
    )

    def test_a_file_that_sets_more_than_is_allowed_gets_less_and_a_warning(
        self, home: Path
    ) -> None:
        text = 'approval_policy = "never"\nsandbox_mode = "danger-full-access"'

        effective = configuration(home, text, requirements=self.DEMANDS).effective()

        assert policies(effective) == ("on-request", "user", "workspace-write")
        assert [warning.summary for warning in effective.warnings] == [
            "`approval_policy` = never is not allowed on this machine; on-request is used instead.",
            (
                "`sandbox_mode` = danger-full-access is not allowed on this machine; "
                "workspace-write is used instead."
            ),
        ]

    def test_a_request_for_more_than_is_allowed_is_refused(self, home: Path) -> None:
        settings = configuration(home, requirements=self.DEMANDS)

        with pytest.raises(ConfigError, match="only `workspace-write`, `read-only`"):
            settings.effective(None, {"sandbox_mode": "danger-full-access"})

    def test_a_requirement_that_is_not_understood_is_not_ignored(self, home: Path) -> None:
        settings = configuration(home, requirements='allowed_sandbox_modes = ["nope"]')

        with pytest.raises(ConfigError, match=r"requirements\.toml"):
            settings.effective()
