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
    """The voices that each version of the realtime protocol knows."""

    default_v1: RealtimeVoice
    default_v2: RealtimeVoice
    v1: list[RealtimeVoice]
    v2: list[RealtimeVoice]
    v3: list[RealtimeVoice] = []


class ThreadRealtimeAudioChunk(Value, frozen=True):
    """A stretch of sound: samples in base64, and how to play them."""

    data: str
    num_channels: UInt16
    sample_rate: UInt32
    item_id: str | None = None
    samples_per_channel: UInt32 | None = None


class ThreadRealtimeAppendAudioParams(Params, frozen=True):
    """Let the realtime session hear a stretch of sound."""

    audio: ThreadRealtimeAudioChunk
    thread_id: str


class ThreadRealtimeAppendAudioResponse(Value, frozen=True):
    """The sound was passed on."""


class ThreadRealtimeAppendSpeechParams(Params, frozen=True):
    """Have the realtime session say a text aloud."""

    text: str
    thread_id: str


class ThreadRealtimeAppendSpeechResponse(Value, frozen=True):
    """The text to say was passed on."""


class ThreadRealtimeAppendTextParams(Params, frozen=True):
    """Let the realtime session read a text."""

    text: str
    thread_id: str
    role: ConversationTextRole = "user"


class ThreadRealtimeAppendTextResponse(Value, frozen=True):
    """The text was passed on."""


class WholeItemThreadRealtimeBemItemPresentation(Value, tag="wholeItem", frozen=True):
    """The item is shown entire."""


class InlineMarkdownThreadRealtimeBemItemPresentation(Value, tag="inlineMarkdown", frozen=True):
    """The item's Markdown is shown within the conversation."""


class InlineVisualizationThreadRealtimeBemItemPresentation(
    Value, tag="inlineVisualization", frozen=True
):
    """One of the item's visualisations is shown within the conversation."""

    index: UInt32


ThreadRealtimeBemItemPresentation = (
    WholeItemThreadRealtimeBemItemPresentation
    | InlineMarkdownThreadRealtimeBemItemPresentation
    | InlineVisualizationThreadRealtimeBemItemPresentation
)


class ThreadRealtimeClosedNotification(Value, frozen=True):
    """The realtime session's line is closed."""

    thread_id: str
    reason: str | None = None


class ThreadRealtimeErrorNotification(Value, frozen=True):
    """The realtime session met an error on the line or behind it."""

    message: str
    thread_id: str


class ThreadRealtimeInitialItem(Value, frozen=True):
    """A text that stands in the session's history from its start."""

    role: ConversationTextRole
    text: str


class RealtimeSessionStartedThreadRealtimeItem(Value, tag="realtimeSessionStarted", frozen=True):
    """The point at which a realtime session began."""

    id: str
    realtime_session_id: str


ThreadRealtimeTranscriptRole = Literal["user", "assistant"]


class TranscriptSegmentThreadRealtimeItem(Value, tag="transcriptSegment", frozen=True):
    """Something the user or the assistant said aloud."""

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
    """The point at which a realtime session ended, and how."""

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
    """An item of the realtime service that has no type here, as it came."""

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
    """More text for an item of the realtime conversation."""

    delta: str
    item_id: str
    thread_id: str


class ThreadRealtimeListVoicesParams(Params, frozen=True):
    """Ask which voices there are."""


class ThreadRealtimeListVoicesResponse(Value, frozen=True):
    """The voices there are."""

    voices: RealtimeVoicesList


class ThreadRealtimeOutputAudioDeltaNotification(Value, frozen=True):
    """A stretch of sound to play."""

    audio: ThreadRealtimeAudioChunk
    thread_id: str


class ThreadRealtimeSdpNotification(Value, frozen=True):
    """The remote side's SDP, the answer to the client's WebRTC offer."""

    sdp: str
    thread_id: str


class ExistingCallThreadRealtimeStartTransport(Value, tag="existingCall", frozen=True):
    """Join a call that the client has set up already."""

    call_id: str


class WebrtcThreadRealtimeStartTransport(Value, tag="webrtc", frozen=True):
    """Speak over WebRTC, for which the client brings an offer."""

    sdp: str


class WebsocketThreadRealtimeStartTransport(Value, tag="websocket", frozen=True):
    """Speak over a WebSocket that the server opens."""


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
    # Absent takes the default prompt, null or empty starts without one.
    prompt: str | UnsetType | None = UNSET
    realtime_end_instructions: str | None = None
    realtime_session_id: str | None = None
    realtime_start_instructions: str | None = None
    transport: ThreadRealtimeStartTransport | None = None
    version: RealtimeConversationVersion | None = None
    voice: RealtimeVoice | None = None
    session_id: str | None = None


class ThreadRealtimeStartResponse(Value, frozen=True):
    """The session is being opened; notifications tell the rest."""


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
    """The session was told to end."""


class ThreadRealtimeTranscriptDeltaNotification(Value, frozen=True):
    """More words that one side said, not tied to an item."""

    delta: str
    role: str
    thread_id: str


class ThreadRealtimeTranscriptDoneNotification(Value, frozen=True):
    """All the words of a stretch of speech that is over."""

    role: str
    text: str
    thread_id: str


class ThreadRealtimeTranscriptUpdatedNotification(Value, frozen=True):
    """More words that one side said, as older peers are told."""

    role: str
    text: str
    thread_id: str
