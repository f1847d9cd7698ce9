"""`python -m scripts.generate` writes the generated files; `--check` only compares them."""

from __future__ import annotations

import sys

from scripts.generate import client_methods, handler_table, methods_page
from scripts.generate.table import ROOT


def main(arguments: list[str]) -> int:
    """Write or compare the files; return 1 if a compared file is stale."""
    files = {
        "src/treadle/client/_methods/async_methods.py": client_methods.render(is_async=True),
        "src/treadle/client/_methods/blocking_methods.py": client_methods.render(is_async=False),
        "src/treadle/server/handlers/_table.py": handler_table.render(),
        "docs/methods.md": methods_page.render(),
    }
    stale = [
        name
        for name, text in files.items()
        if not (ROOT / name).exists() or (ROOT / name).read_text("utf-8") != text
    ]
    if "--check" not in arguments:
        for name in stale:
            (ROOT / name).write_text(files[name], "utf-8")
            sys.stdout.write(f"wrote {name}\n")
        return 0
    for name in stale:
        sys.stderr.write(f"{name} is stale: run `make generate`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
