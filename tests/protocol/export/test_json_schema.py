"""The JSON Schemas: their layout and names, and that real messages satisfy them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft7Validator

from tests.protocol.export.samples import all_structs, fullest, least
from treadle.protocol.base import JsonValue
from treadle.protocol.export import export_json_schema, json_schema_files, typescript_files
from treadle.protocol.export.model import Alias, Record, references
from treadle.protocol.export.vocabulary import read_vocabulary

Maker = Callable[[type[msgspec.Struct]], JsonValue]

DRAFT = "http://json-schema.org/draft-07/schema#"
FLAT = "codex_app_server_protocol.v2.schemas.json"
NESTED = "codex_app_server_protocol.schemas.json"


@cache
def files(*, experimental: bool) -> dict[str, str]:
    """Return all generated files."""
    return json_schema_files(experimental=experimental)


@cache
def schema(path: str, *, experimental: bool = True) -> JsonValue:
    """Return one generated file, parsed."""
    return json.loads(files(experimental=experimental)[path])


def wire_definitions(name: str) -> Iterator[tuple[str, str]]:
    """Pair each struct with the definition that describes it on the wire."""
    vocabulary = read_vocabulary(experimental=True)
    definition = vocabulary.definitions[name]
    if isinstance(definition, Record):
        yield name, name
    elif isinstance(definition, Alias):
        for member in references(definition.type):
            if member in vocabulary.inline:
                yield member, name


def described() -> list[tuple[str, str]]:
    """Return all such pairs of the bundle that holds every type."""
    definitions = schema(NESTED)["definitions"]
    known = read_vocabulary(experimental=True).definitions.keys()
    names = sorted({*definitions, *definitions["v2"]} & known)
    return [pair for name in names for pair in wire_definitions(name)]


@cache
def validator(name: str) -> Draft7Validator:
    definitions = schema(NESTED)["definitions"]
    where = "#/definitions/v2" if name in definitions["v2"] else "#/definitions"
    return Draft7Validator({"$ref": f"{where}/{name}", "definitions": definitions})


def test_an_ordinary_request_reads_like_its_struct() -> None:
    assert schema("v2/TurnInterruptParams.json") == {
        "$schema": DRAFT,
        "description": all_structs()["TurnInterruptParams"].__doc__,
        "properties": {"threadId": {"type": "string"}, "turnId": {"type": "string"}},
        "required": ["threadId", "turnId"],
        "title": "TurnInterruptParams",
        "type": "object",
    }


def test_a_tagged_union_names_its_variants_and_pins_their_tags() -> None:
    assert schema("ApplyPatchApprovalParams.json")["definitions"]["FileChange"]["oneOf"][2] == {
        "description": all_structs()["UpdateFileChange"].__doc__,
        "properties": {
            "move_path": {"type": ["string", "null"]},
            "type": {"enum": ["update"], "title": "UpdateFileChangeType", "type": "string"},
            "unified_diff": {"type": "string"},
        },
        "required": ["type", "unified_diff"],
        "title": "UpdateFileChange",
        "type": "object",
    }


def test_strings_and_objects_of_one_union_are_alternatives() -> None:
    policy = schema("v2/TurnStartParams.json")["definitions"]["AskForApproval"]

    assert policy["oneOf"] == [
        {"enum": ["untrusted", "on-failure", "on-request", "never"], "type": "string"},
        {
            "additionalProperties": False,
            "properties": {
                "granular": {
                    "properties": {
                        "mcp_elicitations": {"type": "boolean"},
                        "request_permissions": {"default": False, "type": "boolean"},
                        "rules": {"type": "boolean"},
                        "sandbox_approval": {"type": "boolean"},
                        "skill_approval": {"default": False, "type": "boolean"},
                    },
                    "required": ["mcp_elicitations", "rules", "sandbox_approval"],
                    "type": "object",
                }
            },
            "required": ["granular"],
            "title": "GranularAskForApproval",
            "type": "object",
        },
    ]


def test_a_request_is_its_method_its_id_and_its_params() -> None:
    messages = {
        message["properties"]["method"]["enum"][0]: message
        for message in schema("ClientRequest.json")["oneOf"]
    }

    def message(method: str, params: JsonValue, required: list[str]) -> JsonValue:
        title = f"{method[0].upper()}{method[1:]}Request"
        return {
            "properties": {
                "id": {"$ref": "#/definitions/RequestId"},
                "method": {"enum": [method], "title": f"{title}Method", "type": "string"},
                "params": params,
            },
            "required": required,
            "title": title,
            "type": "object",
        }

    start = {"$ref": "#/definitions/ThreadStartParams"}
    usage = {"$ref": "#/definitions/GetAccountTokenUsageParams"}
    assert [messages[name] for name in ("thread/start", "account/usage/read", "memory/reset")] == [
        message("thread/start", start, ["id", "method", "params"]),
        message("account/usage/read", {"anyOf": [usage, {"type": "null"}]}, ["id", "method"]),
        message("memory/reset", {"type": "null"}, ["id", "method"]),
    ]


def test_stable_schemas_hide_experimental_methods_fields_variants_and_their_types() -> None:
    def visible(*, experimental: bool) -> list[bool]:
        texts = files(experimental=experimental)
        start = schema("v2/ThreadStartParams.json", experimental=experimental)
        return [
            "v2/CollaborationModeListParams.json" in texts,
            '"collaborationMode/list"' in texts["ClientRequest.json"],
            "dynamicTools" in start["properties"],
            "DynamicToolSpec" in start["definitions"],
            "openai/userVerification" in texts["McpServerElicitationRequestParams.json"],
        ]

    assert visible(experimental=True) == [True] * 5
    assert visible(experimental=False) == [False] * 5


@pytest.mark.parametrize("experimental", [False, True])
def test_every_file_is_a_valid_schema_whose_references_resolve(experimental: bool) -> None:
    Draft7Validator.check_schema(schema(NESTED, experimental=experimental))

    dangling = [
        (path, pointer)
        for path in files(experimental=experimental)
        for pointer in sorted(pointers(schema(path, experimental=experimental)))
        if not leads_somewhere(schema(path, experimental=experimental), pointer)
    ]

    assert dangling == []


def pointers(part: JsonValue) -> set[str]:
    """Yield every reference inside a schema."""
    if isinstance(part, dict):
        own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
        return own.union(*(pointers(value) for value in part.values()))
    if isinstance(part, list):
        return set[str]().union(*(pointers(value) for value in part))
    return set()


def leads_somewhere(whole: JsonValue, pointer: str) -> bool:
    for step in pointer.removeprefix("#/").split("/"):
        if step not in whole:
            return False
        whole = whole[step]
    return True


@pytest.mark.parametrize("make", [least, fullest])
def test_every_encoded_struct_satisfies_its_schema(make: Maker) -> None:
    structs = all_structs()
    encoded = [
        (struct, definition, msgspec.json.decode(msgspec.json.encode(make(structs[struct]))))
        for struct, definition in described()
    ]

    refused = [
        (struct, definition, value)
        for struct, definition, value in encoded
        if not validator(definition).is_valid(value)
    ]

    assert refused == []
    assert len(encoded) > 800
    assert not validator("Turn").is_valid({})


@pytest.mark.parametrize("make", [least, fullest])
def test_every_struct_survives_a_round_trip(make: Maker) -> None:
    made = [make(struct) for _, struct in sorted(all_structs().items())]

    back = [msgspec.json.decode(msgspec.json.encode(each), type=type(each)) for each in made]

    assert back == made


def test_the_files_on_disk_always_equal_the_files_in_memory(tmp_path: Path) -> None:
    export_json_schema(tmp_path / "new" / "folder", experimental=False)

    written = {
        path.relative_to(tmp_path / "new" / "folder").as_posix(): path.read_text(encoding="utf-8")
        for path in tmp_path.rglob("*.json")
    }
    assert written == files(experimental=False) == json_schema_files(experimental=False)


def test_methods_that_the_server_refuses_are_marked() -> None:
    marked = json_schema_files(experimental=True, refused={"rollout/compress": "no reason"})
    plain = json_schema_files(experimental=True)
    differing = {path for path, text in marked.items() if text != plain[path]}

    assert differing == {
        "ClientRequest.json",
        "codex_app_server_protocol.schemas.json",
        "codex_app_server_protocol.v2.schemas.json",
    }
    described = [
        (variant["properties"]["method"]["enum"], variant["description"])
        for variant in json.loads(marked["ClientRequest.json"])["oneOf"]
        if "description" in variant
    ]
    assert described == [(["rollout/compress"], "Refused by this server: no reason.")]
    types = typescript_files(experimental=True, refused={"rollout/compress": "no reason"})
    assert "rollout/compress: no reason" in types["ClientRequest.ts"]
