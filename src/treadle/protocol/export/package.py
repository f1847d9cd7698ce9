"""Arranges the TypeScript in files: the place of each type, its imports, and the indexes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from treadle.protocol.export.bundle import write_files
from treadle.protocol.export.messages import (
    CLIENT_NOTIFICATIONS,
    Messages,
    Method,
    read_messages,
)
from treadle.protocol.export.model import Anything, ListOf, MapOf, Record, Type, Union
from treadle.protocol.export.typescript import (
    JSON_VALUE,
    JSON_VALUE_TEXT,
    TypeWriter,
    doc_comment,
)

_HEADER: Final = "// Generated from the protocol's structs: changes made here are lost.\n\n"

# The reference writes these beside `v2/`: they are older than that folder, or come from crates
# that do not depend on the app-server. No rule computes the list, and imports depend on it.
_ROOT_NAMES: Final = """
AbsolutePathBuf AgentMessageInputContent AgentPath ApplyPatchApprovalParams
ApplyPatchApprovalResponse AuthMode AutoCompactTokenLimitScope ClientInfo ClientNotification
ClientRequest CodexResponseHandoffMode CollaborationMode ConfigurationReasoning ContentItem
ConversationGitInfo ConversationSummary ConversationTextRole ExecCommandApprovalParams
ExecCommandApprovalResponse FileChange ForcedLoginMethod FunctionCallOutputBody
FunctionCallOutputContentItem FuzzyFileSearchMatchType FuzzyFileSearchParams
FuzzyFileSearchResponse FuzzyFileSearchResult FuzzyFileSearchSessionCompletedNotification
FuzzyFileSearchSessionStartParams FuzzyFileSearchSessionStartResponse
FuzzyFileSearchSessionStopParams FuzzyFileSearchSessionStopResponse
FuzzyFileSearchSessionUpdateParams FuzzyFileSearchSessionUpdateResponse
FuzzyFileSearchSessionUpdatedNotification GetAuthStatusParams GetAuthStatusResponse
GetConversationSummaryParams GetConversationSummaryResponse GitDiffToRemoteParams
GitDiffToRemoteResponse GitSha GuardianAssessmentOutcome ImageDetail ImageGenerationFailure
ImageGenerationInputImage ImageGenerationItem
InitializeCapabilities InitializeParams InitializeResponse InputModality
InternalChatMessageMetadataPassthrough InternalSessionSource LegacyAppPathString LocalShellAction
LocalShellExecAction LocalShellStatus McpServerInfo MessagePhase ModeKind MultiAgentMode
ParsedCommand PathUri Personality PlanType RealtimeConversationVersion RealtimeOutputModality
RealtimeVoice RealtimeVoicesList ReasoningEffort ReasoningItemContent
ReasoningItemReasoningSummary ReasoningSummary RequestId Resource ResourceContent ResourceTemplate
ResponseItem ResponseItemId ReviewDecision ServerNotification ServerNotificationEnvelope
ServerRequest Settings SleepItem SubAgentSource ThreadId ThreadMemoryMode Tool ToolExposureSurface
Verbosity WebSearchContextSize WebSearchItem WebSearchLocation WebSearchMode WebSearchProvider
WebSearchToolConfig
"""
ROOT: Final = frozenset(_ROOT_NAMES.split())

_PARTS: Final = {
    "DynamicToolFunctionSpec": ("DynamicToolSpec", "function"),
    "DynamicToolNamespaceSpec": ("DynamicToolSpec", "namespace"),
    "ImageGenerationItem": ("ThreadItem", "imageGeneration"),
    "LocalShellExecAction": ("LocalShellAction", "exec"),
    "SleepItem": ("ThreadItem", "sleep"),
    "WebSearchItem": ("ThreadItem", "webSearch"),
}
"""Variants that the reference also exports under a separate name, without their tag."""

_SYNONYMS: Final = {"ExecPolicyAmendment": "Array<string>", "ResponseItemId": "string"}
"""Names of the reference for types that are written inline."""

_TWINS: Final = {
    "ExecPolicyAmendment": "ExecPolicyAmendment",
    "NetworkPolicyAmendment": "NetworkPolicyAmendment",
    "NetworkPolicyRuleAction": "NetworkPolicyRuleAction",
    "SessionSource": "LegacySessionSource",
    "WebSearchAction": "ResponsesApiWebSearchAction",
}
"""Names that the reference has both beside `v2/` and in it, and our name for the one beside it."""


def export_typescript(
    out: Path, *, experimental: bool, refused: Mapping[str, str] | None = None
) -> None:
    """Write the TypeScript types below a folder, which is created if missing."""
    write_files(out, typescript_files(experimental=experimental, refused=refused))


def typescript_files(
    *, experimental: bool, refused: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the text of every TypeScript file by its relative path.

    `refused` has the methods that the server refuses, with the reasons: `ClientRequest` lists them.
    """
    messages = read_messages(experimental=experimental)
    package = _Package()
    _add_types(package, messages)
    _add_unions(package, messages, refused or {})
    _add_other_names(package, messages)
    return package.files()


class _Package:
    """Collects types and writes them as files that import each other."""

    def __init__(self) -> None:
        self._types: dict[str, tuple[str, str, frozenset[str]]] = {}

    def add(self, name: str, text: str, uses: Iterable[str], doc: str = "") -> None:
        self._types[name] = (text, doc, frozenset(uses) - {name})

    def __contains__(self, name: str) -> bool:
        return name in self._types

    def files(self) -> dict[str, str]:
        self.add(JSON_VALUE, JSON_VALUE_TEXT, (), "Any JSON document.")
        files = {f"{_location(name)}.ts": self._file(name) for name in self._types}
        names = sorted(set(self._types) - {JSON_VALUE})
        twins = [name for name, ours in _TWINS.items() if ours in self._types]
        files |= {f"{name}.ts": self._twin(name) for name in twins}
        files["index.ts"] = _index(sorted([*twins, *(name for name in names if name in ROOT)]))
        files["index.ts"] += 'export * as v2 from "./v2";\n'
        files["v2/index.ts"] = _index(name for name in names if name not in ROOT)
        return {path: files[path] for path in sorted(files)}

    def _file(self, name: str) -> str:
        text, doc, uses = self._types[name]
        imports = "".join(_import(each, _location(name)) for each in sorted(uses, key=_location))
        space = "\n" if imports else ""
        return f"{_HEADER}{imports}{space}{doc_comment(doc)}export type {name} = {text};\n"

    def _twin(self, name: str) -> str:
        ours = _TWINS[name]
        as_ = "" if ours == name else f" as {name}"
        return f'{_HEADER}export type {{ {ours}{as_} }} from "./{_location(ours)}";\n'


def _location(name: str) -> str:
    if name == JSON_VALUE:
        return f"serde_json/{name}"
    return name if name in ROOT else f"v2/{name}"


def _import(name: str, user: str) -> str:
    target = _location(name)
    if user.startswith("v2/"):
        path = target.removeprefix("v2/") if target.startswith("v2/") else f"../{target}"
        path = path if path.startswith("../") else f"./{path}"
    else:
        path = f"./{target}"
    return f'import type {{ {name} }} from "{path}";\n'


def _index(names: Iterable[str]) -> str:
    exports = (f'export type {{ {name} }} from "./{name}";\n' for name in names)
    return _HEADER + "".join(exports)


def _add_types(package: _Package, messages: Messages) -> None:
    vocabulary = messages.vocabulary
    writer = TypeWriter(vocabulary)
    methods = (*messages.all(), *messages.legacy_requests)
    roots = {name for method in methods for name in (method.params, method.result) if name}
    for name in vocabulary.reachable(roots | {"RequestId", *messages.error_types()}):
        uses = set(vocabulary.needs(name))
        if _holds_anything(messages, name):
            uses.add(JSON_VALUE)
        package.add(name, writer.definition(name), uses, vocabulary.definitions[name].doc)


def _holds_anything(messages: Messages, name: str) -> bool:
    """Return whether the text of a type mentions `JsonValue`, inline types included."""
    vocabulary = messages.vocabulary

    def holds(type_: Type) -> bool:
        match type_:
            case Anything():
                return True
            case ListOf(inner) | MapOf(inner):
                return holds(inner)
            case Union(members):
                return any(holds(member) for member in members)
            case _:
                inline = getattr(type_, "name", None)
                return inline in vocabulary.inline and _holds_anything(messages, str(inline))

    definition = vocabulary.definitions[name]
    if isinstance(definition, Record):
        rest = () if definition.rest is None else (definition.rest,)
        return any(holds(type_) for type_ in (*(f.type for f in definition.fields), *rest))
    return holds(definition.type)


def _add_unions(package: _Package, messages: Messages, refused: Mapping[str, str]) -> None:
    requests = (*messages.client_requests, *messages.legacy_requests)
    known = [method.name for method in requests if method.name in refused]
    lines = ["Every request; this server refuses:", *(f"{name}: {refused[name]}" for name in known)]
    _add_union(package, "ClientRequest", requests, "\n".join(lines) if known else "")
    _add_union(package, "ServerRequest", messages.server_requests)
    _add_union(package, "ServerNotification", messages.notifications)
    notifications = " | ".join(f'{{ "method": "{name}" }}' for name in CLIENT_NOTIFICATIONS)
    package.add("ClientNotification", notifications, ())
    package.add(
        "ServerNotificationEnvelope",
        "{ emittedAtMs?: number } & ServerNotification",
        ["ServerNotification"],
        "A notification with the time at which the server sent it, in Unix milliseconds.",
    )


def _add_union(package: _Package, name: str, methods: tuple[Method, ...], doc: str = "") -> None:
    uses = {method.params for method in methods if method.params}
    if any(method.is_request for method in methods):
        uses.add("RequestId")
    package.add(name, " | ".join(_message(method) for method in methods), uses, doc)


def _message(method: Method) -> str:
    id_ = ", id: RequestId" if method.is_request else ""
    if method.params is None:
        params = "params?: undefined"
    elif method.may_omit_params:
        params = f"params?: {method.params} | null"
    else:
        params = f"params: {method.params}"
    return f'{{ "method": "{method.name}"{id_}, {params} }}'


def _add_other_names(package: _Package, messages: Messages) -> None:
    for name, (union, tag) in _PARTS.items():
        if union in package and name not in messages.vocabulary.definitions:
            text = f'Omit<Extract<{union}, {{ "type": "{tag}" }}>, "type">'
            package.add(name, text, [union])
    for name, text in _SYNONYMS.items():
        package.add(name, text, ())
