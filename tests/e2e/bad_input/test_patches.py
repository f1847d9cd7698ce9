"""After any invalid patch the model receives an error, no file changes, and the thread works.

Every test runs against a server in its own process.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.harness.acting import WRITES, acting, is_there, only
from tests.harness.model_server import patches
from tests.harness.threads import params_of
from treadle.engine.patch.effort import MAX_BYTES, MAX_UPDATE_BYTES

MEBIBYTE = 2**20
BINARY = bytes(range(256))
OUTSIDE = "/var/lib/treadle-must-not-exist"
TWO_FILES = """\
*** Begin Patch
*** Add File: b.txt
+b
*** Update File: a.txt
@@
-no
*** End Patch"""


@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        ("nonsense", "invalid patch: The first line of the patch must be '*** Begin Patch'"),
        (
            "*** Begin Patch\n*** Update File: a.txt\n@@\n-not there\n+x\n*** End Patch",
            "Failed to find expected lines in {work}/a.txt:\nnot there",
        ),
        (
            "*** Begin Patch\n*** Update File: none.txt\n@@\n-a\n+x\n*** End Patch",
            "Failed to read file to update {work}/none.txt: No such file or directory (os error 2)",
        ),
        (
            TWO_FILES,
            "Failed to find expected lines in {work}/a.txt:\nno",
        ),
        (
            "*** Begin Patch\n*** Add File: n\0ul\n+x\n*** End Patch",
            r"invalid patch: '{work}/n\x00ul' contains a NUL byte",
        ),
    ],
    ids=["nonsense", "context", "missing", "second-file", "nul"],
)
async def test_a_patch_that_does_not_apply(home: Path, patch: str, reason: str) -> None:
    async with acting(home, **WRITES) as scene:
        (scene.work / "a.txt").write_text("one\n")
        _, output = await scene.play(patches(patch))
        await scene.goes_on()

        assert output == f"apply_patch verification failed: {reason.format(work=scene.work)}"
        assert [path.name for path in scene.work.iterdir()] == ["a.txt"]
        assert (scene.work / "a.txt").read_text() == "one\n"


async def test_a_patch_of_a_binary_file(home: Path) -> None:
    async with acting(home, **WRITES) as scene:
        (scene.work / "a.bin").write_bytes(BINARY)
        patch = "*** Begin Patch\n*** Update File: a.bin\n@@\n-a\n+b\n*** End Patch"
        _, output = await scene.play(patches(patch))
        await scene.goes_on()

        assert output == (
            f"apply_patch verification failed: Failed to read file to update {scene.work}/a.bin: "
            "invalid utf-8 sequence of 1 bytes from index 128"
        )
        assert (scene.work / "a.bin").read_bytes() == BINARY


@pytest.mark.parametrize(
    ("patch", "limit", "reason"),
    [
        (
            "*** Delete File: huge",
            MAX_BYTES,
            "apply_patch verification failed: Failed to read {path}: {why}",
        ),
        (
            "*** Update File: huge\n@@\n-a\n+b",
            MAX_UPDATE_BYTES,
            "apply_patch verification failed: Failed to read file to update {path}: {why}",
        ),
        (
            "*** Add File: huge\n+a",
            MAX_BYTES,
            "Exit code: 1\nWall time: {s} seconds\nOutput:\nFailed to write file {path}: {why}\n",
        ),
    ],
    ids=["delete", "update", "add"],
)
async def test_a_patch_of_a_file_that_is_too_large(
    home: Path, patch: str, limit: int, reason: str
) -> None:
    async with acting(home, **WRITES) as scene:
        huge = scene.work / "huge"
        huge.touch()
        os.truncate(huge, limit + 1)
        _, output = await scene.play(patches(f"*** Begin Patch\n{patch}\n*** End Patch"))
        await scene.goes_on()

        seconds = re.search(r"Wall time: (\S+)", output)
        why = f"path `{huge}` is larger than {limit} bytes"
        assert output == reason.format(path=huge, why=why, s=seconds and seconds[1])
        assert huge.stat().st_size == limit + 1


async def test_a_large_file_that_a_patch_deletes(home: Path) -> None:
    """The notification omits its content, which would not fit into a message."""
    async with acting(home, **WRITES) as scene:
        (scene.work / "large").write_bytes(b"\0" * 32 * MEBIBYTE)
        messages, _ = await scene.play(
            patches("*** Begin Patch\n*** Delete File: large\n*** End Patch")
        )
        await scene.goes_on()

        assert not is_there(str(scene.work / "large"))
    assert [change["diff"] for change in only(messages, "fileChange")["changes"]] == [""]
    assert "Binary files" in params_of(messages, "turn/diff/updated")[-1]["diff"]


async def test_a_patch_of_a_path_outside_the_writable_roots(home: Path) -> None:
    async with acting(home, **WRITES) as scene:
        patch = f"*** Begin Patch\n*** Add File: {OUTSIDE}\n+b\n*** End Patch"
        _, output = await scene.play(patches(patch))
        await scene.goes_on()

    reason = "writing outside of the project; rejected by user approval settings"
    assert output == f"patch rejected: {reason}"
    assert not is_there(OUTSIDE)
