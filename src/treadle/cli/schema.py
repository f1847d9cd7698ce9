"""`treadle app-server generate-*`: writes the protocol as files for other languages."""

from __future__ import annotations

import sys
from pathlib import Path


def generate(kind: str, out: str, *, experimental: bool) -> int:
    """Write TypeScript types or JSON Schemas into a folder."""
    from treadle.protocol.export import export_json_schema, export_typescript
    from treadle.server.handlers.refused import REASONS

    export = export_typescript if kind == "generate-ts" else export_json_schema
    try:
        export(Path(out), experimental=experimental, refused=REASONS)
    except OSError as error:
        print(f"Error: cannot write to {out}: {error.strerror}", file=sys.stderr)
        return 1
    return 0
