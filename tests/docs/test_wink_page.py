"""The example on the page about the WINK adapter runs, and prints what the page says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

pytest.importorskip("weakincentives", reason="weakincentives needs Python 3.12.3 or newer")

from treadle.wink import CodexAppServerClientConfig

PAGE = (Path(__file__).parents[2] / "docs" / "wink.md").read_text("utf-8")
EXAMPLE = re.compile(
    r"<!-- script: (?P<script>.*?) -->\n```python\n(?P<code>.*?)```\n\n```text\n(?P<output>.*?)```",
    re.DOTALL,
)


def test_the_example_runs_and_prints_what_the_page_says(tmp_path: Path) -> None:
    (example,) = EXAMPLE.finditer(PAGE)
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"responses": json.loads(example["script"]), "then": "fail"}))
    variables = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    home = {"TREADLE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example["code"]],
        env={**variables, **home, "TREADLE_SCRIPT": str(script)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert (done.returncode, done.stderr, done.stdout) == (0, "", example["output"])


def test_the_page_names_every_option() -> None:
    _, _, table = PAGE.partition("| `CodexAppServerClientConfig` |")
    named = set(re.findall(r"`(\w+)`", table))

    assert {field.name for field in fields(CodexAppServerClientConfig)} <= named
