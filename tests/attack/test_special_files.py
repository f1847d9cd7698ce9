"""A path from a model or a client may lead to anything: only regular files are read, up to a limit.

Each of these would block, never end or fill the memory if it were opened or read as a file.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.model_server import calls, patches, says
from tests.harness.threads import EPILOGUE, Client, Stage, outline
from treadle.engine.conversation.input import MAX_FILE_BYTES
from treadle.engine.project.docs import read_project_docs
from treadle.engine.tools import image
from treadle.protocol.base import JsonValue
from treadle.support.files import reading as files

PNG = b"\x89PNG\r\n\x1a\n" + bytes(32) + b"IEND" + bytes(4)
KINDS = ["pipe", "socket", "folder", "zero", "tty", "link-to-pipe", "link-to-zero", "circle"]


@pytest.fixture
def place(stage: Stage, short_folder: Path) -> Iterator[Path]:
    """Fill the workspace with things that are not regular files."""
    folder = stage.workspace
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "tty").symlink_to("/dev/tty")
    (folder / "link-to-pipe").symlink_to("pipe")
    (folder / "link-to-zero").symlink_to("zero")
    (folder / "circle").symlink_to("circle")
    (folder / "socket").symlink_to(short_folder / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_folder / "socket"))
        yield folder


async def writer(stage: Stage) -> tuple[Client, str]:
    client = await stage.client()
    thread_id = await client.start(
        cwd=str(stage.workspace), sandbox="workspace-write", approvalPolicy="never"
    )
    return client, thread_id


async def viewed(stage: Stage, path: str) -> JsonValue:
    """Return what the model gets when it views a path; the turn must complete."""
    client, thread_id = await writer(stage)
    stage.model.plays(calls("view_image", {"path": path}), says("ok"))
    messages = await client.run(thread_id)
    assert outline(messages)[-2:] == EPILOGUE
    return stage.model.requests[-1].outputs()["call-1"]


@pytest.mark.parametrize("kind", KINDS)
async def test_view_image_refuses_what_is_not_a_file(stage: Stage, place: Path, kind: str) -> None:
    output = await viewed(stage, kind)

    refusals = (f"image path `{place}/{kind}` is not a file", f"unable to read image at `{place}")
    assert isinstance(output, str)
    assert output.startswith(refusals)


async def test_view_image_refuses_a_sparse_file_of_two_gigabytes(stage: Stage) -> None:
    path = stage.workspace / "sparse.png"
    path.touch()
    os.truncate(path, 2**31)

    assert await viewed(stage, "sparse.png") == (
        f"image at `{path}` is too large: {2**31} bytes, expected at most {image.MAX_IMAGE_BYTES}"
    )


async def test_view_image_reads_nothing_of_a_file_without_a_size(stage: Stage) -> None:
    """Files in /proc say that they are empty."""
    assert await viewed(stage, "/proc/self/environ") == image.UNREADABLE


async def test_view_image_does_not_read_a_replacement_of_a_checked_file(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, pipe = stage.workspace / "a.png", stage.workspace / "pipe"
    path.write_bytes(PNG)
    os.mkfifo(pipe)
    check = files._check  # noqa: SLF001 - between this check and the next one the file is exchanged

    def exchange(mode: int, checked: str) -> None:
        check(mode, checked)
        if pipe.exists():
            pipe.rename(path)

    monkeypatch.setattr(files, "_check", exchange)

    assert await viewed(stage, "a.png") == f"image path `{path}` is not a file"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", ["localImage", "localAudio"])
async def test_input_that_does_not_name_a_regular_file_is_refused(
    stage: Stage, place: Path, kind: str, part: str
) -> None:
    client, thread_id = await writer(stage)
    user_input: JsonValue = {"type": part, "path": str(place / kind)}

    refusal = await client.refusal("turn/start", {"threadId": thread_id, "input": [user_input]})

    assert refusal.data["path"] == "input[0].path"
    assert f"cannot read '{place / kind}'" in refusal.message
    stage.model.plays(says("ok"))
    assert outline(await client.run(thread_id))[-2:] == EPILOGUE


async def test_input_files_that_are_too_large_together_are_refused(stage: Stage) -> None:
    client, thread_id = await writer(stage)
    paths = [stage.workspace / name for name in ("a.png", "b.png")]
    for path in paths:
        path.touch()
        os.truncate(path, MAX_FILE_BYTES // 2 + 1)
    user_input = [{"type": "localImage", "path": str(path)} for path in paths]

    refusal = await client.refusal("turn/start", {"threadId": thread_id, "input": user_input})

    assert refusal.data["path"] == "input[1].path"
    assert str(MAX_FILE_BYTES) in refusal.message


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "folder"])
async def test_project_files_of_any_kind_are_tolerated(
    stage: Stage, place: Path, kind: str
) -> None:
    (place / "AGENTS.md").symlink_to(kind)
    (place / ".git").mkdir()
    (place / ".git" / "HEAD").symlink_to(place / kind)
    (place / ".agents" / "skills" / "x").mkdir(parents=True)
    (place / ".agents" / "skills" / "x" / "SKILL.md").symlink_to(place / kind)
    client, thread_id = await writer(stage)
    stage.model.plays(says("ok"))

    assert outline(await client.run(thread_id))[-2:] == EPILOGUE
    await client.request("skills/list", {"cwds": [str(place)]})


def test_project_docs_are_read_up_to_their_limit(tmp_path: Path) -> None:
    path = tmp_path / "AGENTS.md"
    path.write_text("x" * 100)
    os.truncate(path, 500 * 1024 * 1024)

    assert len(read_project_docs(tmp_path, may_read=bool, max_bytes=1000).text) == 1000


@pytest.mark.parametrize("kind", KINDS)
async def test_fs_read_file_refuses_what_is_not_a_file(
    stage: Stage, place: Path, kind: str
) -> None:
    client = await stage.client()

    refusal = await client.refusal("fs/readFile", {"path": str(place / kind)})

    assert "is not a file" in refusal.message or refusal.kind == "io"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_patch_of_anything_but_a_regular_file_is_refused(
    stage: Stage, place: Path, kind: str
) -> None:
    client, thread_id = await writer(stage)
    text = f"*** Begin Patch\n*** Update File: {kind}\n@@\n-a\n+b\n*** End Patch"
    stage.model.plays(patches(text), says("ok"))

    assert outline(await client.run(thread_id))[-2:] == EPILOGUE
    output = stage.model.requests[-1].outputs()["call-1"]
    refusals = ("Failed to read file to update", f"{place}/circle leads through too many links")
    assert output.startswith(tuple(f"apply_patch verification failed: {each}" for each in refusals))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "circle"])
async def test_an_instructions_file_that_is_not_a_regular_file_is_refused(
    stage: Stage, place: Path, kind: str
) -> None:
    stage.configure(f'model_instructions_file = "{place / kind}"')
    client = await stage.client()

    refusal = await client.refusal("thread/start", {"cwd": str(place)})

    assert "model instructions file" in refusal.message
