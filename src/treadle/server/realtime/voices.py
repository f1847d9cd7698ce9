"""The voices of realtime models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treadle.protocol.realtime import RealtimeVoice, RealtimeVoicesList
from treadle.server.realtime.service_events import Version

_V1: Final[list[RealtimeVoice]] = [
    *("juniper", "maple", "spruce", "ember", "vale", "breeze", "arbor", "sol", "cove")
]
_V2: Final[list[RealtimeVoice]] = [
    *("alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse", "marin", "cedar")
]
VOICES: Final = RealtimeVoicesList(default_v1="cove", default_v2="marin", v1=_V1, v2=_V2)


def voices_of(version: Version) -> Sequence[RealtimeVoice]:
    """Return the voices of a version."""
    return _V1 if version == "v1" else _V2


def default_voice(version: Version) -> RealtimeVoice:
    """Return the voice of a session that names none."""
    return VOICES.default_v1 if version == "v1" else VOICES.default_v2
