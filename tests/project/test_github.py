"""The files in `.github` are what GitHub expects, and run what a contributor runs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
FORMS = ("bug.yml", "feature.yml")

TEXT = {"type": "string", "minLength": 1}
FIELD = {
    "type": "object",
    "properties": {
        "type": {"enum": ["markdown", "textarea", "input", "dropdown", "checkboxes"]},
        "id": {"type": "string", "pattern": "^[a-zA-Z0-9_-]+$"},
        "attributes": {
            "type": "object",
            "properties": dict.fromkeys(
                ("label", "description", "placeholder", "value", "render"), TEXT
            ),
            "additionalProperties": False,
        },
        "validations": {
            "type": "object",
            "properties": {"required": {"type": "boolean"}},
            "additionalProperties": False,
        },
    },
    "required": ["type", "attributes"],
    "additionalProperties": False,
    "if": {"properties": {"type": {"const": "markdown"}}},
    "then": {"properties": {"attributes": {"required": ["value"]}}},
    "else": {"properties": {"attributes": {"required": ["label"]}}, "required": ["id"]},
}
FORM = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "description": TEXT,
        "labels": {"type": "array", "items": TEXT},
        "body": {"type": "array", "minItems": 1, "items": FIELD},
    },
    "required": ["name", "description", "body"],
    "additionalProperties": False,
}
CHOOSER = {
    "type": "object",
    "properties": {"blank_issues_enabled": {"type": "boolean"}},
    "additionalProperties": False,
}
STEP = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "if": TEXT,
        "uses": {"type": "string", "pattern": r"^[\w-]+/[\w-]+@v\d+$"},
        "with": {"type": "object"},
        "run": TEXT,
    },
    "oneOf": [{"required": ["uses"]}, {"required": ["run"]}],
    "additionalProperties": False,
}
WORKFLOW = {
    "type": "object",
    "properties": {
        "jobs": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": {"steps": {"type": "array", "items": STEP}},
                "required": ["runs-on", "timeout-minutes", "steps"],
            },
        }
    },
    "required": ["name", "permissions", "jobs"],
}


def load(name: str) -> dict[str, dict[str, dict[str, object]]]:
    """A file of `.github`, without what YAML itself cannot read."""
    loaded: dict[str, dict[str, dict[str, object]]] = yaml.safe_load((GITHUB / name).read_text())
    return loaded


@pytest.mark.parametrize("name", FORMS)
def test_issue_forms_follow_the_syntax_of_github(name: str) -> None:
    form = load(f"ISSUE_TEMPLATE/{name}")
    jsonschema.validate(form, FORM)
    ids = re.findall(
        r"^    id: (.*)$", (GITHUB / "ISSUE_TEMPLATE" / name).read_text(), re.MULTILINE
    )
    assert len(ids) == len(set(ids))


def test_the_bug_form_names_the_security_policy() -> None:
    """Ours: a link of `config.yml` needs a full address, and a clone does not know its own."""
    jsonschema.validate(load("ISSUE_TEMPLATE/config.yml"), CHOOSER)
    assert "SECURITY.md" in str(load("ISSUE_TEMPLATE/bug.yml")["body"])


def test_the_workflow_checks_each_python_that_the_project_names() -> None:
    workflow = load("workflows/ci.yml")
    jsonschema.validate(workflow, WORKFLOW)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)'", str(project["classifiers"]))
    assert workflow["jobs"]["check"]["strategy"] == {
        "fail-fast": False,
        "matrix": {"python": named},
    }


def test_the_workflow_runs_targets_that_exist() -> None:
    targets = re.findall(
        r'(?:run: |python\)" )make ([a-z-]+)', (GITHUB / "workflows/ci.yml").read_text()
    )
    assert {"check", "test-reference"} <= set(targets)
    for target in targets:
        assert f"\n{target}: " in (ROOT / "Makefile").read_text()
