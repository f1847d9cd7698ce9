"""Lists of models with too many parts, or too many models."""

from __future__ import annotations

import pytest

from tests.model.double import Answer, model_of, provider_double, refusal
from treadle.model.base import ModelError
from treadle.model.listing import MAX_NAME, MAX_NAMES
from treadle.support.text.json_text import MAX_CONTAINERS, MAX_VALUES


@pytest.mark.parametrize(
    "document",
    [
        b"[" * 200 + b"]" * 200,
        b"[" * 1_000_000,
        b'{"data":[%b]}' % b",".join([b"{}"] * (MAX_CONTAINERS + 1)),
        b"[%b]" % b",".join([b"0"] * (MAX_VALUES + 1)),
    ],
    ids=["nested", "not closed", "objects", "numbers"],
)
async def test_a_list_with_too_many_parts_is_not_decoded(document: bytes) -> None:
    async with provider_double(Answer(pieces=[document])) as double, model_of(double) as model:
        with pytest.raises(ModelError, match="/v1/models has too deep nesting or too many parts"):
            await model.list_models()


async def test_a_list_of_very_many_models_is_shortened() -> None:
    document = {"data": ["x" * (MAX_NAME + 1), *map(str, range(MAX_NAMES + 1))]}
    async with provider_double(refusal("200 OK", document)) as double, model_of(double) as model:
        assert await model.list_models() == [str(number) for number in range(MAX_NAMES)]
