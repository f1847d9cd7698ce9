"""Arranges the JSON Schemas in files, one per message type, and in two bundles of all types."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from treadle.protocol.base import JsonValue
from treadle.protocol.export.json_schema import DRAFT, Schema, SchemaWriter
from treadle.protocol.export.messages import (
    CLIENT_NOTIFICATIONS,
    ENVELOPES,
    Messages,
    Method,
    read_messages,
    version_two,
)

_UNIONS = {
    "ClientNotification": "Every notification that a client may send.",
    "ClientRequest": "Every request that a client may send.",
    "ServerNotification": "Every notification that the server may send.",
    "ServerRequest": "Every request that the server may send to a client.",
}


def export_json_schema(
    out: Path, *, experimental: bool, refused: Mapping[str, str] | None = None
) -> None:
    """Write the JSON Schemas below a folder, which is created if missing."""
    write_files(out, json_schema_files(experimental=experimental, refused=refused))


def write_files(out: Path, files: dict[str, str]) -> None:
    """Write texts under their relative paths."""
    for path, text in files.items():
        target = out / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def json_schema_files(
    *, experimental: bool, refused: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the text of every JSON Schema file by its relative path.

    `refused` has the methods that the server refuses, with the reasons: their description says so.
    """
    layout = _Layout(read_messages(experimental=experimental), refused or {})
    files = {path: layout.standalone(name) for path, name in layout.paths().items()}
    files["codex_app_server_protocol.schemas.json"] = layout.bundle()
    files["codex_app_server_protocol.v2.schemas.json"] = layout.flat_bundle()
    return {path: _dump(files[path]) for path in sorted(files)}


def _dump(schema: JsonValue) -> str:
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


class _Layout:
    def __init__(self, messages: Messages, refused: Mapping[str, str]) -> None:
        self._messages = messages
        self._refused = refused
        self._vocabulary = messages.vocabulary
        self._version_two = version_two(messages)
        self._flat = SchemaWriter(self._vocabulary, _flat_pointer)
        self._nested = SchemaWriter(self._vocabulary, self._nested_pointer)
        self._flat_cache: dict[str, Schema] = {}

    def paths(self) -> dict[str, str]:
        """Return the path of each type that has a file."""
        paths = {f"{name}.json": name for name in (*_UNIONS, *ENVELOPES)}
        for method in self._messages.all():
            for name in method.files:
                paths[self._path(method, name)] = name
        paths |= {f"v2/{name}.json": name for name in self._messages.error_types()}
        return paths

    def _path(self, method: Method, name: str) -> str:
        if method.name == "initialize":
            return f"v1/{name}.json"
        return f"v2/{name}.json" if name in self._version_two else f"{name}.json"

    def standalone(self, name: str) -> Schema:
        """Write one type with the definitions that it needs."""
        schema: Schema = {"$schema": DRAFT, "title": name, **self._definition(name)}
        needed = self._needed([name]) - {name}
        if needed:
            schema["definitions"] = {each: self._definition(each) for each in needed}
        return schema

    def bundle(self) -> Schema:
        """Write all types, with those of version 2 in a separate namespace."""
        names = self._needed([*_UNIONS, *self.paths().values()])
        two = names & self._version_two
        definitions: Schema = {name: self._titled(name, self._nested) for name in names - two}
        definitions["v2"] = {name: self._titled(name, self._nested) for name in two}
        return _bundle("CodexAppServerProtocol", definitions)

    def flat_bundle(self) -> Schema:
        """Write the types of version 2, and those that the unions of messages need."""
        names = self._needed(["ClientRequest", "ServerNotification"]) | self._version_two
        definitions = {name: self._titled(name, self._flat) for name in names}
        return _bundle("CodexAppServerProtocolV2", definitions)

    def _titled(self, name: str, writer: SchemaWriter) -> Schema:
        return {"title": name} | self._write(name, writer)

    def _definition(self, name: str) -> Schema:
        if name not in self._flat_cache:
            self._flat_cache[name] = self._write(name, self._flat)
        return self._flat_cache[name]

    def _write(self, name: str, writer: SchemaWriter) -> Schema:
        if name not in _UNIONS:
            return writer.definition(name)
        pointer = _flat_pointer if writer is self._flat else self._nested_pointer
        alternatives = [
            _message(method, pointer) | self._state(method) for method in self._methods(name)
        ]
        schema: Schema = {"oneOf": alternatives, "description": _UNIONS[name]}
        if name == "ServerNotification":
            schema["properties"] = {"emittedAtMs": {"type": "integer", "format": "int64"}}
        return schema

    def _state(self, method: Method) -> Schema:
        reason = self._refused.get(method.name) if method.is_request else None
        return {} if reason is None else {"description": f"Refused by this server: {reason}."}

    def _methods(self, union: str) -> tuple[Method, ...]:
        match union:
            case "ClientRequest":
                return self._messages.client_requests
            case "ServerRequest":
                return self._messages.server_requests
            case "ServerNotification":
                return self._messages.notifications
            case _:
                return tuple(
                    Method(name, params=None, result=None, is_request=False, nullable=None)
                    for name in CLIENT_NOTIFICATIONS
                )

    def _needed(self, roots: Sequence[str]) -> set[str]:
        unions = [name for name in roots if name in _UNIONS]
        types = [name for name in roots if name not in _UNIONS]
        for union in unions:
            for method in self._methods(union):
                types += [method.params] if method.params else []
                types += ["RequestId"] if method.is_request else []
        return self._vocabulary.reachable(types) | set(unions)

    def _nested_pointer(self, name: str) -> str:
        return f"#/definitions/v2/{name}" if name in self._version_two else _flat_pointer(name)


def _flat_pointer(name: str) -> str:
    return f"#/definitions/{name}"


def _bundle(title: str, definitions: dict[str, JsonValue]) -> Schema:
    return {"$schema": DRAFT, "title": title, "type": "object", "definitions": definitions}


def _message(method: Method, pointer: Callable[[str], str]) -> Schema:
    name = {"enum": [method.name], "title": f"{method.title}Method", "type": "string"}
    properties: Schema = {"method": name}
    required = ["method"]
    if method.is_request:
        properties["id"] = {"$ref": pointer("RequestId")}
        required.append("id")
    if method.params is not None:
        properties["params"] = {"$ref": pointer(method.params)}
        if method.may_omit_params:
            properties["params"] = {"anyOf": [properties["params"], {"type": "null"}]}
        else:
            required.append("params")
    elif method.is_request:
        properties["params"] = {"type": "null"}
    return {
        "properties": properties,
        "required": sorted(required),
        "title": method.title,
        "type": "object",
    }
