"""The tool that shows image files to the model."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from tests.harness.items import untimed
from tests.harness.scripted import client_of, playing
from tests.harness.threads import outline, params_of
from treadle.engine.tools.image import MAX_IMAGE_BYTES, media_type
from treadle.model.base import ModelItem
from treadle.model.scripted.model import ScriptedModel, calls, says
from treadle.protocol.base import JsonValue

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
GIF = base64.b64decode("R0lGODlhAQABAIAAAP///wAAACH5BAAAAAAALAAAAAABAAEAAAICRAEAOw==")
WEBP = base64.b64decode("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==")
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(20) + b"\xff\xd9"


async def view(
    home: Path, arguments: JsonValue, *, model: str = "mock-model", **settings: JsonValue
) -> tuple[list[JsonValue], ModelItem]:
    """Let the model view a file; return the messages and what the model received."""
    folder = home.parent / "pictures"
    scripted = ScriptedModel([calls("view_image", arguments, call_id="call-1"), says("done")])
    async with playing(home, scripted) as server, client_of(server) as client:
        thread_id = await client.start(cwd=str(folder), model=model, **settings)
        return await client.run(thread_id), scripted.requests[-1].input[-1]


@pytest.fixture
def folder(home: Path) -> Path:
    """Where the thread works."""
    folder = home.parent / "pictures"
    folder.mkdir()
    return folder


async def test_the_model_receives_the_image_and_clients_an_item(home: Path, folder: Path) -> None:
    (folder / "x.png").write_bytes(PNG)

    messages, given = await view(home, {"path": "x.png"})

    seen = {"type": "imageView", "id": "call-1", "path": str(folder / "x.png")}
    assert untimed(params_of(messages, "item/started")[1]["item"]) == seen
    assert untimed(params_of(messages, "item/completed")[1]["item"]) == seen
    assert given == {
        "type": "function_call_output",
        "call_id": "call-1",
        "output": [
            {
                "type": "input_image",
                "image_url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}",
                "detail": "high",
            }
        ],
    }


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (GIF, "image/gif"),
        (WEBP, "image/webp"),
        (JPEG, "image/jpeg"),
        (PNG[:-8], None),
        (GIF[:-1], None),
        (WEBP[:20], None),
        (JPEG[:-2], None),
        (b"hello", None),
        (b"", None),
        (b'<svg xmlns="http://www.w3.org/2000/svg"/>', None),
    ],
)
def test_an_image_is_recognized_by_its_bytes_and_a_truncated_one_is_rejected(
    data: bytes, kind: str | None
) -> None:
    assert media_type(data) == kind


async def test_the_name_of_the_file_does_not_matter(home: Path, folder: Path) -> None:
    (folder / "x.txt").write_bytes(GIF)

    _, given = await view(home, {"path": str(folder / "x.txt"), "detail": "original"})

    (part,) = given["output"]
    assert part["image_url"].startswith("data:image/gif;base64,")
    assert part["detail"] == "original"


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (
            {"path": "nope.png"},
            "unable to locate image at `{folder}/nope.png`: No such file or directory",
        ),
        (
            {"path": "text.png/x.png"},
            "unable to locate image at `{folder}/text.png/x.png`: Not a directory",
        ),
        ({"path": "inner"}, "image path `{folder}/inner` is not a file"),
        ({"path": "pipe"}, "image path `{folder}/pipe` is not a file"),
        ({"path": "text.png"}, "unable to process image: invalid or unsupported image data"),
        (
            {"path": "large.png"},
            (
                "image at `{folder}/large.png` is too large: 20971521 bytes, "
                "expected at most 20971520"
            ),
        ),
        (
            {"path": "text.png", "detail": "low"},
            (
                "view_image.detail only supports `high` or `original`; omit `detail` for default "
                "high resized behavior, got `low`"
            ),
        ),
        ({}, "failed to parse function arguments: Object missing required field `path`"),
        ({"path": "a\0b"}, "unable to read image at `{folder}/a\0b`: "),
    ],
)
async def test_an_invalid_image_is_rejected_with_a_clear_message(
    home: Path, folder: Path, arguments: JsonValue, output: str
) -> None:
    (folder / "inner").mkdir()
    (folder / "text.png").write_text("no picture")
    os.mkfifo(folder / "pipe")
    with (folder / "large.png").open("wb") as file:
        file.truncate(MAX_IMAGE_BYTES + 1)

    messages, given = await view(home, arguments)

    assert given["output"].startswith(output.format(folder=folder))
    assert "item/started imageView" not in outline(messages)


async def test_a_model_without_image_input_gets_an_error(home: Path, folder: Path) -> None:
    (folder / "x.png").write_bytes(PNG)

    _, given = await view(home, {"path": "x.png"}, model="gpt-oss-20b")

    assert given["output"] == "view_image is not allowed because you do not support image inputs"


async def test_an_image_that_commands_could_not_read_is_not_shown(home: Path, folder: Path) -> None:
    outside = home.parent / "outside.png"
    outside.write_bytes(PNG)
    (folder / "inside.png").write_bytes(PNG)
    (folder / "link.png").symlink_to(outside)
    access = {"type": "restricted", "readableRoots": [str(folder)]}
    names = ["inside.png", "link.png", str(outside)]
    script = [calls("view_image", {"path": name}, call_id=name) for name in names]
    model = ScriptedModel([script, says("done")])
    async with playing(home, model) as server, client_of(server) as client:
        thread_id = await client.start(cwd=str(folder))
        await client.run(thread_id, sandboxPolicy={"type": "readOnly", "access": access})

    items = model.requests[-1].input
    outputs = {item["call_id"]: item["output"] for item in items if "output" in item}
    assert outputs.pop("inside.png")[0]["type"] == "input_image"
    assert outputs == {
        "link.png": f"the sandbox does not allow reading `{folder}/link.png`",
        str(outside): f"the sandbox does not allow reading `{outside}`",
    }
