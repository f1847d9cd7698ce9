"""A report as a ZIP file: what the user wrote and, on request, what helps to explain it."""

from __future__ import annotations

import os
import platform
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Final

import msgspec
from msgspec import Struct

from treadle import __version__
from treadle.protocol.base import JsonValue
from treadle.support.files.reading import open_regular
from treadle.support.files.writing import make_folders, sync_folder
from treadle.support.ids import uuid7

MAX_ATTACHMENT_BYTES: Final = 64 * 1024 * 1024
_CHUNK: Final = 1024 * 1024
_TYPES: Final = {".json": "application/json", ".jsonl": "application/x-ndjson"}


class UnreadableAttachment(Exception):
    """A file that belongs to the report cannot be read."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(f"failed to read selected attachment {path}: {error.strerror}")
        self.path = path


class FeedbackAttachment(Struct, frozen=True):
    """A part of a report: its name, and its content or the file that has it."""

    name: str
    content: bytes = b""
    path: str | None = None


class FeedbackReport(Struct, frozen=True):
    """What the user wrote, and the attachments."""

    classification: str
    thread_id: str
    reason: str | None = None
    tags: Mapping[str, str] = {}
    attachments: Sequence[FeedbackAttachment] = ()

    def summary(self) -> JsonValue:
        """Return the content of `report.json`."""
        return {
            "event_id": uuid7(),
            "message": f"[{self.classification}]: Treadle thread {self.thread_id}",
            "reason": self.reason,
            "timestamp": time.time(),
            "tags": {
                **self.tags,
                "classification": self.classification,
                "thread_id": self.thread_id,
                "treadle_version": __version__,
                "python_version": platform.python_version(),
                "platform": platform.platform(),
            },
        }


def save(report: FeedbackReport, path: Path) -> None:
    """Write a report to a new file that only its owner can read.

    Raises:
        FileExistsError: the file exists.
        OSError: it cannot be written.
        UnreadableAttachment: an attachment cannot be read; nothing is left behind.
    """
    with _new_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("report.json", msgspec.json.encode(report.summary()))
        manifest: list[JsonValue] = []
        for number, attachment in enumerate(report.attachments):
            name = Path(attachment.name).name
            entry = f"attachments/{number:04}/{name}"
            is_whole = _write(archive, entry, attachment)
            manifest.append(
                {
                    "entry": entry,
                    "filename": name,
                    "contentType": _TYPES.get(Path(name).suffix, "text/plain"),
                    **({} if is_whole else {"truncatedTo": MAX_ATTACHMENT_BYTES}),
                }
            )
        archive.writestr("manifest.json", msgspec.json.encode(manifest))


def save_in_home(report: FeedbackReport, home: Path) -> Path:
    """Write a report to the folder for reports of a home, and return its path.

    Raises:
        OSError: it cannot be written.
        UnreadableAttachment: an attachment cannot be read.
    """
    folder = home / "feedback"
    for parent in make_folders(folder):
        sync_folder(parent)
    path = folder / f"{uuid7()}.zip"
    save(report, path)
    return path


@contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that gets its name when it is complete."""
    beside = path.with_name(f".{path.name[:200]}.{uuid7()}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(beside, flags, 0o600), "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # Unlike a rename, a link replaces nothing.
        os.link(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    sync_folder(path.parent)


def _write(archive: zipfile.ZipFile, entry: str, attachment: FeedbackAttachment) -> bool:
    """Add an attachment, and return whether it fits."""
    if attachment.path is None:
        archive.writestr(entry, attachment.content)
        return True
    try:
        source = os.fdopen(open_regular(attachment.path), "rb")
    except OSError as error:
        raise UnreadableAttachment(attachment.path, error) from error
    left = MAX_ATTACHMENT_BYTES
    with closing(source), archive.open(entry, "w") as target:
        while left and (chunk := source.read(min(left, _CHUNK))):
            target.write(chunk)
            left -= len(chunk)
        return bool(left) or not source.read(1)
