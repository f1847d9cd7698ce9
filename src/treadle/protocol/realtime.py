"""Realtime (voice and text) sessions beside a thread's turns."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType, field

from treadle.protocol.base import JsonValue, Params, Sparse, UInt16, UInt32, Value

CodexResponseHandoffMode = Literal["thinking", "commentary", "bemTags"]

ConversationTextRole = Literal["user", "developer", "assistant"]

RealtimeConversationVersion = Literal["v1", "v2", "v3"]

RealtimeOutputModality = Literal["text", "audio"]

RealtimeVoice = Literal[
    "alloy",
    "arbor",
    "ash",
    "aube",
    "ballad",
    "breeze",
    "bubbie",
    "cedar",
    "coral",
    "cove",
    "echo",
    "ember",
    "haetsal",
    "hanul",
    "himari",
    "juniper",
    "leher",
    "maple",
    "marin",
    "miko",
    "neer",
    "porto",
    "rindo",
    "rio",
    "rivage",
    "sage",
    "selva",
    "shimmer",
    "sol",
    "sonna",
    "spruce",
    "tinta",
    "vale",
    "verse",
    "viola",
]


class RealtimeVoicesList(Sparse, frozen=True):
    """The voices that each version of the realtime protocol supports."""

    default_v1: RealtimeVoice
    default_v2: RealtimeVoice
    v1: list[RealtimeVoice]
    v2: list[RealtimeVoice]
    v3: list[RealtimeVoice] = []


class ThreadRealtimeAudioChunk(Value, frozen=True):
    """A chunk of audio: samples in base64, and their format."""

    data: str
    num_channels: UInt16
    sample_rate: UInt32
    item_id: str | None = None
    samples_per_channel: UInt32 | None = None


class ThreadRealtimeAppendAudioParams(Params, frozen=True):
    """Send a chunk of audio to the realtime session."""

    audio: ThreadRealtimeAudioChunk
    thread_id: str


class ThreadRealtimeAppendAudioResponse(Value, frozen=True):
    """The audio was forwarded."""


class ThreadRealtimeAppendSpeechParams(Params, frozen=True):
    """Make the realtime session speak a text."""

    text: str
    thread_id: str


class ThreadRealtimeAppendSpeechResponse(Value, frozen=True):
    """The text to speak was forwarded."""


class ThreadRealtimeAppendTextParams(Params, frozen=True):
    """Send a text to the realtime session."""

    text: str
    thread_id: str
    role: ConversationTextRole = "user"


class ThreadRealtimeAppendTextResponse(Value, frozen=True):
    """The text was forwarded."""


class WholeItemThreadRealtimeBemItemPresentation(Value, tag="wholeItem", frozen=True):
    """The whole item is shown."""


class InlineMarkdownThreadRealtimeBemItemPresentation(Value, tag="inlineMarkdown", frozen=True):
    """The item's Markdown is shown in the conversation."""


class InlineVisualizationThreadRealtimeBemItemPresentation(
    Value, tag="inlineVisualization", frozen=True
):
    """One of the item's visualizations is shown in the conversation."""

    index: UInt32


ThreadRealtimeBemItemPresentation = (
    WholeItemThreadRealtimeBemItemPresentation
    | InlineMarkdownThreadRealtimeBemItemPresentation
    | InlineVisualizationThreadRealtimeBemItemPresentation
)


class ThreadRealtimeClosedNotification(Value, frozen=True):
    """The connection of the realtime session is closed."""

    thread_id: str
    reason: str | None = None


class ThreadRealtimeErrorNotification(Value, frozen=True):
    """An error of the realtime session or its connection."""

    message: str
    thread_id: str


class ThreadRealtimeInitialItem(Value, frozen=True):
    """A text in the initial history of the session."""

    role: ConversationTextRole
    text: str


class RealtimeSessionStartedThreadRealtimeItem(Value, tag="realtimeSessionStarted", frozen=True):
    """The start of a realtime session."""

    id: str
    realtime_session_id: str


ThreadRealtimeTranscriptRole = Literal["user", "assistant"]


class TranscriptSegmentThreadRealtimeItem(Value, tag="transcriptSegment", frozen=True):
    """A spoken message of the user or the assistant."""

    id: str
    realtime_session_id: str
    role: ThreadRealtimeTranscriptRole
    text: str


class BemItemPromotedThreadRealtimeItem(Value, tag="bemItemPromoted", frozen=True):
    """An item of a turn that is shown in the realtime conversation."""

    id: str
    realtime_session_id: str
    item_id: str = field(name="item_id")
    presentation: ThreadRealtimeBemItemPresentation
    turn_id: str = field(name="turn_id")


ThreadRealtimeSessionOutcome = Literal["ended", "failed"]


class RealtimeSessionClosedThreadRealtimeItem(Value, tag="realtimeSessionClosed", frozen=True):
    """The end of a realtime session, and its reason."""

    id: str
    realtime_session_id: str
    outcome: ThreadRealtimeSessionOutcome


ThreadRealtimeItem = (
    RealtimeSessionStartedThreadRealtimeItem
    | TranscriptSegmentThreadRealtimeItem
    | BemItemPromotedThreadRealtimeItem
    | RealtimeSessionClosedThreadRealtimeItem
)


class ThreadRealtimeItemAddedNotification(Value, frozen=True):
    """An item of the realtime service that has no type here, unchanged."""

    item: JsonValue
    thread_id: str


class ThreadRealtimeItemCompletedNotification(Value, frozen=True):
    """An item of the realtime conversation is final and stored."""

    item: ThreadRealtimeItem
    thread_id: str


class ThreadRealtimeItemStartedNotification(Value, frozen=True):
    """An item of the realtime conversation begins; its text follows."""

    item: ThreadRealtimeItem
    thread_id: str


class ThreadRealtimeItemTranscriptDeltaNotification(Value, frozen=True):
    """More text of an item of the realtime conversation."""

    delta: str
    item_id: str
    thread_id: str


class ThreadRealtimeListVoicesParams(Params, frozen=True):
    """List the available voices."""


class ThreadRealtimeListVoicesResponse(Value, frozen=True):
    """The available voices."""

    voices: RealtimeVoicesList


class ThreadRealtimeOutputAudioDeltaNotification(Value, frozen=True):
    """A chunk of audio to play."""

    audio: ThreadRealtimeAudioChunk
    thread_id: str


class ThreadRealtimeSdpNotification(Value, frozen=True):
    """The remote side's SDP, the answer to the client's WebRTC offer."""

    sdp: str
    thread_id: str


class ExistingCallThreadRealtimeStartTransport(Value, tag="existingCall", frozen=True):
    """Join a call that the client has already set up."""

    call_id: str


class WebrtcThreadRealtimeStartTransport(Value, tag="webrtc", frozen=True):
    """Use WebRTC with the client's offer."""

    sdp: str


class WebsocketThreadRealtimeStartTransport(Value, tag="websocket", frozen=True):
    """Use a WebSocket that the server opens."""


ThreadRealtimeStartTransport = (
    WebsocketThreadRealtimeStartTransport
    | WebrtcThreadRealtimeStartTransport
    | ExistingCallThreadRealtimeStartTransport
)


class ThreadRealtimeStartParams(Params, frozen=True):
    """Open a realtime session beside the turns of a thread."""

    thread_id: str
    backend_reasoning_status: bool = False
    client_managed_handoffs: bool | None = None
    codex_response_handoff_channel_prefixes: dict[str, list[str]] | None = None
    codex_response_handoff_mode: CodexResponseHandoffMode | None = None
    codex_response_item_prefix: str | None = None
    codex_responses_as_items: bool | None = None
    delegation_ack_filler: bool | None = None
    flush_transcript_tail_on_session_end: bool | None = None
    include_startup_context: bool | None = None
    # Version 3 only.
    initial_items: list[ThreadRealtimeInitialItem] | None = None
    model: str | None = None
    output_modality: RealtimeOutputModality | None = None
    # Absent uses the default prompt; null or empty starts without one.
    prompt: str | UnsetType | None = UNSET
    realtime_end_instructions: str | None = None
    realtime_session_id: str | None = None
    # The client's own id of the voice session.
    voice_session_id: str | None = None
    realtime_start_instructions: str | None = None
    transport: ThreadRealtimeStartTransport | None = None
    version: RealtimeConversationVersion | None = None
    voice: RealtimeVoice | None = None
    session_id: str | None = None


class ThreadRealtimeStartResponse(Value, frozen=True):
    """The session is being opened; notifications report its progress."""


class ThreadRealtimeStartedNotification(Value, frozen=True):
    """The realtime session has begun."""

    thread_id: str
    version: RealtimeConversationVersion
    realtime_session_id: str | None = None
    session_id: str | None = None


class ThreadRealtimeStopParams(Params, frozen=True):
    """End the realtime session of a thread."""

    thread_id: str


class ThreadRealtimeStopResponse(Value, frozen=True):
    """The session is being closed."""


class ThreadRealtimeTranscriptDeltaNotification(Value, frozen=True):
    """More transcribed text of one speaker, not tied to an item."""

    delta: str
    role: str
    thread_id: str


class ThreadRealtimeTranscriptDoneNotification(Value, frozen=True):
    """The complete transcript of a finished utterance."""

    role: str
    text: str
    thread_id: str


class ThreadRealtimeTranscriptUpdatedNotification(Value, frozen=True):
    """More transcribed text of one speaker, as sent to older peers."""

    role: str
    text: str
    thread_id: str
