"""Generates the protocol's JSON Schemas and TypeScript types from the structs.

Building the texts is pure; only the two `export_` functions write to disk.
"""

from __future__ import annotations

from treadle.protocol.export.bundle import export_json_schema, json_schema_files
from treadle.protocol.export.package import export_typescript, typescript_files

__all__ = ["export_json_schema", "export_typescript", "json_schema_files", "typescript_files"]
