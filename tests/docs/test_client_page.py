"""Each example in docs/client.md runs, and prints what the page says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.commands import LOGIN_SHELL

# The page shows commands of bash.
TEXT = (Path(__file__).parents[2] / "docs" / "client.md").read_text("utf-8")
PAGE = TEXT.replace("/bin/bash", LOGIN_SHELL)
EXAMPLE = re.compile(
    r"(?:<!-- script: (?P<script>.*?) -->\n)?```python\n(?P<code>.*?)```\n"
    r"(?:\n```text\n(?P<output>.*?)```)?",
    re.DOTALL,
)
EXAMPLES = [(match["script"], match["code"], match["output"]) for match in EXAMPLE.finditer(PAGE)]


def names() -> list[str]:
    return [
        PAGE[: match.start()].rpartition("\n## ")[2].partition("\n")[0]
        for match in EXAMPLE.finditer(PAGE)
    ]


@pytest.mark.parametrize(("script", "code", "output"), EXAMPLES, ids=names())
def test_the_example_runs_and_prints_what_the_page_says(
    script: str | None, code: str, output: str | None, tmp_path: Path
) -> None:
    variables = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    env = {**variables, "TREADLE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    env.pop("CODEX_HOME", None)
    if script is not None:
        path = tmp_path / "script.json"
        path.write_text(json.dumps({"responses": json.loads(script), "then": "fail"}))
        env["TREADLE_SCRIPT"] = str(path)

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    if output is None:
        assert done.stdout.strip()
    else:
        assert done.stdout.strip() == output.strip()
