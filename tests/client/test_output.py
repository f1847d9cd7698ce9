"""Answers as typed values."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TypedDict, assert_type

import msgspec
import pytest
from pydantic import BaseModel

from tests.client.conftest import Reach
from tests.harness.scripted import playing
from treadle import AsyncClient, OutputInvalid, TurnResult
from treadle.client._runtime.output import output_schema


@dataclasses.dataclass
class DataclassCity:
    name: str
    people: int
    twin: str | None = None
    tags: list[str] = dataclasses.field(default_factory=list)


class StructCity(msgspec.Struct):
    name: str
    people: int
    twin: str | None = None
    tags: list[str] = []


class PydanticCity(BaseModel):
    name: str
    people: int
    twin: str | None = None
    tags: list[str] = []


class _Named(TypedDict):
    name: str
    people: int


class TypedDictCity(_Named, total=False):
    twin: str | None
    tags: list[str]


GOOD = {"name": "Ulm", "people": 127_000, "twin": None, "tags": None}
KINDS = {
    DataclassCity: DataclassCity("Ulm", 127_000),
    StructCity: StructCity("Ulm", 127_000),
    PydanticCity: PydanticCity(name="Ulm", people=127_000),
    TypedDictCity: {"name": "Ulm", "people": 127_000},
}


@dataclasses.dataclass
class Setting:
    """A field for each keyword of JSON Schema."""

    default: str
    properties: dict[str, int]
    type: str
    required: bool = False


async def test_fields_may_have_the_names_of_schema_keywords(home: Path) -> None:
    schema = output_schema(Setting)
    assert schema["required"] == ["default", "properties", "type", "required"]
    assert schema["properties"]["default"] == {"type": "string"}
    assert schema["properties"]["properties"]["additionalProperties"] == {"type": "integer"}
    setting = Setting("on", {"a": 1}, "t", required=True)
    script = [json.dumps(dataclasses.asdict(setting))]
    async with playing(home, script) as server, AsyncClient.in_process(server) as client:
        thread = await client.start_thread()
        assert (await thread.run("Which?", output_type=Setting)).output == setting


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_schema_is_strict_and_optional_fields_are_nullable(kind: type) -> None:
    schema = output_schema(kind)
    assert sorted(schema["required"]) == ["name", "people", "tags", "twin"]
    assert schema["additionalProperties"] is False
    assert {"type": "null"} in schema["properties"]["tags"]["anyOf"]
    assert "$ref" not in json.dumps(schema)
    assert "default" not in json.dumps(schema)


@pytest.mark.parametrize(("kind", "expected"), KINDS.items(), ids=lambda each: str(each)[:30])
async def test_a_turn_returns_a_value_of_the_type(home: Path, kind: type, expected: object) -> None:
    script = [json.dumps(GOOD)]
    async with playing(home, script) as server, AsyncClient.in_process(server) as client:
        thread = await client.start_thread()
        result: TurnResult[object] = await thread.run("Describe Ulm", output_type=kind)
    assert result.output == expected


async def test_text_around_the_document_is_ignored(in_memory: Reach) -> None:
    """Not every server and provider enforces the schema."""
    async with in_memory("echo") as (client, _), client:
        thread = await client.start_thread()
        answer = f"Here it is:\n```json\n{json.dumps(GOOD)}\n```\nAnything else?"
        result = await thread.run(answer, output_type=StructCity)
    assert result.output == StructCity("Ulm", 127_000)


async def test_type_checkers_know_the_type_of_the_output(in_memory: Reach) -> None:
    async with in_memory("echo") as (client, _), client:
        thread = await client.start_thread()
        typed = await client.run_turn(thread.id, json.dumps(GOOD), output_type=DataclassCity)
        assert_type(typed, TurnResult[DataclassCity])
        untyped = await thread.run("hi")
        assert_type(untyped, TurnResult[None])
    assert (typed.output.people, untyped.output) == (127_000, None)


async def test_an_answer_that_does_not_fit_is_sent_back_once(home: Path) -> None:
    bad = json.dumps({**GOOD, "people": "many"})
    # The server asks for a correction once by itself; the client's own turn is the next.
    script = [bad, bad, json.dumps(GOOD)]
    async with playing(home, script) as server, AsyncClient.in_process(server) as client:
        thread = await client.start_thread()
        result = await thread.run("Describe Ulm", output_type=DataclassCity)
        turns = (await thread.read()).turns
    assert result.output == DataclassCity("Ulm", 127_000)
    assert len(turns) == 2
    assert result.turn.id == turns[1].id


async def test_an_answer_that_never_fits_is_an_error_with_the_text(home: Path) -> None:
    async with (
        playing(home, ["no"] * 4) as server,
        AsyncClient.in_process(server) as client,
    ):
        thread = await client.start_thread()
        with pytest.raises(OutputInvalid) as caught:
            await thread.run("Describe Ulm", output_type=StructCity)
    assert caught.value.text == "no"
    assert caught.value.reason.startswith("invalid JSON")
