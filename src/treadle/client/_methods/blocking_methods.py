"""The protocol's methods as methods of the blocking client.

Generated from the table in `treadle/protocol/client_requests.py` by `make generate`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from msgspec import UNSET, UnsetType

from treadle.protocol import client_requests, legacy
from treadle.protocol.account import (
    BedrockDiscoverParams,
    BedrockDiscoverResponse,
    BedrockSetupParams,
    BedrockSetupResponse,
    CancelLoginAccountParams,
    CancelLoginAccountResponse,
    GatewayOAuthCancelResponse,
    GatewayOAuthLoginParams,
    GatewayOAuthLoginResponse,
    GatewayOAuthReadParams,
    GatewayOAuthReadResponse,
    GetAccountParams,
    GetAccountResponse,
    GetWorkspaceMessagesResponse,
    LoginAccountParams,
    LoginAccountResponse,
    LogoutAccountResponse,
)
from treadle.protocol.account_session import (
    AccountSessionsListParams,
    AccountSessionsResponse,
    AccountSessionsSwitchParams,
    AccountSessionsSwitchResponse,
    GetAccountSecuritySetupResponse,
)
from treadle.protocol.account_usage import (
    AddCreditsNudgeCreditType,
    ConsumeAccountRateLimitResetCreditParams,
    ConsumeAccountRateLimitResetCreditResponse,
    GetAccountRateLimitsParams,
    GetAccountRateLimitsResponse,
    GetAccountTokenUsageParams,
    GetAccountTokenUsageResponse,
    SendAddCreditsNudgeEmailParams,
    SendAddCreditsNudgeEmailResponse,
)
from treadle.protocol.app import (
    AppsInstalledParams,
    AppsInstalledResponse,
    AppsListParams,
    AppsListResponse,
    AppsReadParams,
    AppsReadResponse,
)
from treadle.protocol.approval import (
    ThreadApproveGuardianDeniedActionParams,
    ThreadApproveGuardianDeniedActionResponse,
)
from treadle.protocol.attachment import (
    ThreadAttachmentAddParams,
    ThreadAttachmentAddResponse,
    ThreadAttachmentListParams,
    ThreadAttachmentListResponse,
    ThreadAttachmentOwnerListParams,
    ThreadAttachmentOwnerListResponse,
    ThreadAttachmentRemoveParams,
    ThreadAttachmentRemoveResponse,
)
from treadle.protocol.base import (
    AbsolutePathBuf,
    Int64,
    JsonValue,
    LegacyAppPathString,
    NoParams,
    RequestId,
    SortDirection,
    ThreadId,
    UInt32,
    UInt64,
)
from treadle.protocol.collaboration import (
    CollaborationMode,
    CollaborationModeListParams,
    CollaborationModeListResponse,
    MultiAgentMode,
)
from treadle.protocol.command import (
    CommandExecResizeParams,
    CommandExecResizeResponse,
    CommandExecTerminalSize,
    CommandExecTerminateParams,
    CommandExecTerminateResponse,
    CommandExecWriteParams,
    CommandExecWriteResponse,
    ThreadBackgroundTerminalsCleanParams,
    ThreadBackgroundTerminalsCleanResponse,
    ThreadBackgroundTerminalsListParams,
    ThreadBackgroundTerminalsListResponse,
    ThreadBackgroundTerminalsTerminateParams,
    ThreadBackgroundTerminalsTerminateResponse,
    ThreadShellCommandParams,
    ThreadShellCommandResponse,
)
from treadle.protocol.config import (
    ConfigBatchWriteParams,
    ConfigEdit,
    ConfigReadParams,
    ConfigReadResponse,
    ConfigValueWriteParams,
    ConfigWriteResponse,
    MergeStrategy,
)
from treadle.protocol.diagnostics import ServerDiagnosticsParams, ServerDiagnosticsResponse
from treadle.protocol.elicitation import (
    ThreadDecrementElicitationParams,
    ThreadDecrementElicitationResponse,
    ThreadIncrementElicitationParams,
    ThreadIncrementElicitationResponse,
)
from treadle.protocol.environment import (
    EnvironmentAddParams,
    EnvironmentAddResponse,
    EnvironmentInfoParams,
    EnvironmentInfoResponse,
    EnvironmentSkillsParams,
    EnvironmentStatusParams,
    EnvironmentStatusResponse,
    TurnEnvironmentParams,
)
from treadle.protocol.external_agent import (
    ExternalAgentConfigDetectParams,
    ExternalAgentConfigDetectResponse,
    ExternalAgentConfigImportHistoriesReadResponse,
    ExternalAgentConfigImportHistoryRecordParams,
    ExternalAgentConfigImportHistoryRecordResponse,
    ExternalAgentConfigImportHistoryRecordTypeResultParams,
    ExternalAgentConfigImportParams,
    ExternalAgentConfigImportResponse,
    ExternalAgentConfigMigrationItem,
)
from treadle.protocol.feature import (
    ExperimentalFeatureEnablementSetParams,
    ExperimentalFeatureEnablementSetResponse,
    ExperimentalFeatureListParams,
    ExperimentalFeatureListResponse,
    MockExperimentalMethodParams,
    MockExperimentalMethodResponse,
)
from treadle.protocol.feedback import (
    FeedbackSaveParams,
    FeedbackSaveResponse,
    FeedbackUploadParams,
    FeedbackUploadResponse,
)
from treadle.protocol.fs import (
    FsCopyParams,
    FsCopyResponse,
    FsCreateDirectoryParams,
    FsCreateDirectoryResponse,
    FsGetMetadataParams,
    FsGetMetadataResponse,
    FsReadDirectoryParams,
    FsReadDirectoryResponse,
    FsRemoveParams,
    FsRemoveResponse,
    FsUnwatchParams,
    FsUnwatchResponse,
    FsWatchParams,
    FsWatchResponse,
)
from treadle.protocol.fuzzy_file_search import (
    FuzzyFileSearchParams,
    FuzzyFileSearchResponse,
    FuzzyFileSearchSessionStartParams,
    FuzzyFileSearchSessionStartResponse,
    FuzzyFileSearchSessionStopParams,
    FuzzyFileSearchSessionStopResponse,
    FuzzyFileSearchSessionUpdateParams,
    FuzzyFileSearchSessionUpdateResponse,
)
from treadle.protocol.goal import (
    ThreadGoalClearParams,
    ThreadGoalClearResponse,
    ThreadGoalGetParams,
    ThreadGoalGetResponse,
    ThreadGoalMutationOrigin,
    ThreadGoalSetParams,
    ThreadGoalSetResponse,
    ThreadGoalStatus,
)
from treadle.protocol.history import (
    RolloutCompressResponse,
    ThreadItemOutputDeferral,
    ThreadItemsListCursor,
    ThreadItemsListParams,
    ThreadItemsListResponse,
    ThreadItemsReadParams,
    ThreadItemsReadResponse,
    ThreadPredictionRequestParams,
    ThreadPredictionRequestResponse,
    ThreadSearchOccurrencesParams,
    ThreadSearchOccurrencesResponse,
    ThreadSearchParams,
    ThreadSearchResponse,
    ThreadSearchSortKey,
    ThreadTimelineListParams,
    ThreadTimelineListResponse,
    ThreadTurnsListParams,
    ThreadTurnsListResponse,
)
from treadle.protocol.hook import HooksListParams, HooksListResponse
from treadle.protocol.input import UserInput
from treadle.protocol.legacy import (
    GetAuthStatusParams,
    GetAuthStatusResponse,
    GetConversationSummaryParams,
    GetConversationSummaryResponse,
    GitDiffToRemoteParams,
    GitDiffToRemoteResponse,
)
from treadle.protocol.marketplace import (
    MarketplaceAddParams,
    MarketplaceAddResponse,
    MarketplaceRemoveParams,
    MarketplaceRemoveResponse,
    MarketplaceUpgradeParams,
    MarketplaceUpgradeResponse,
)
from treadle.protocol.mcp import (
    ListMcpServerStatusParams,
    ListMcpServerStatusResponse,
    McpResourceReadParams,
    McpResourceReadResponse,
    McpResourceReadTarget,
    McpServerEventStreamStartParams,
    McpServerEventStreamStartResponse,
    McpServerEventStreamStopParams,
    McpServerEventStreamStopResponse,
    McpServerOauthClientRegistration,
    McpServerOauthLoginParams,
    McpServerOauthLoginResponse,
    McpServerRefreshResponse,
    McpServerStatusDetail,
    McpServerToolCallParams,
    McpServerToolCallResponse,
)
from treadle.protocol.memory import (
    MemoryResetResponse,
    MemoryStatusParams,
    MemoryStatusResponse,
    ThreadMemoryMode,
    ThreadMemoryModeSetParams,
    ThreadMemoryModeSetResponse,
    ThreadMemoryReadParams,
    ThreadMemoryReadResponse,
)
from treadle.protocol.method import Request
from treadle.protocol.model import (
    ModelListParams,
    ModelListResponse,
    ModelProviderCapabilitiesReadParams,
    ModelProviderCapabilitiesReadResponse,
    Personality,
    ReasoningEffort,
    ReasoningSummary,
)
from treadle.protocol.model_provider import (
    GcpSetupParams,
    GcpSetupResponse,
    ModelProviderConfigWriteParams,
    ModelProviderConfigWriteResponse,
    ModelProviderListParams,
    ModelProviderListResponse,
    ProviderSettingsPatch,
)
from treadle.protocol.permission import PermissionProfileListParams, PermissionProfileListResponse
from treadle.protocol.plugin import (
    PluginInstalledParams,
    PluginInstalledResponse,
    PluginInstallParams,
    PluginInstallResponse,
    PluginListMarketplaceKind,
    PluginListParams,
    PluginListResponse,
    PluginReadParams,
    PluginReadResponse,
    PluginReconcileParams,
    PluginReconcileResponse,
    PluginSearchParams,
    PluginSearchResponse,
    PluginSearchScope,
    PluginShareDiscoverability,
    PluginSkillReadParams,
    PluginSkillReadResponse,
    PluginUninstallParams,
    PluginUninstallResponse,
)
from treadle.protocol.plugin_share import (
    PluginShareCheckoutParams,
    PluginShareCheckoutResponse,
    PluginShareDeleteParams,
    PluginShareDeleteResponse,
    PluginShareListParams,
    PluginShareListResponse,
    PluginShareSaveParams,
    PluginShareSaveResponse,
    PluginShareTarget,
    PluginShareUpdateDiscoverability,
    PluginShareUpdateTargetsParams,
    PluginShareUpdateTargetsResponse,
)
from treadle.protocol.policy import ApprovalsReviewer, AskForApproval, SandboxPolicy
from treadle.protocol.process import (
    ProcessKillParams,
    ProcessKillResponse,
    ProcessResizePtyParams,
    ProcessResizePtyResponse,
    ProcessSpawnParams,
    ProcessSpawnResponse,
    ProcessTerminalSize,
    ProcessWriteStdinParams,
    ProcessWriteStdinResponse,
)
from treadle.protocol.project import (
    ProjectCreateParams,
    ProjectCreateResponse,
    ProjectDeleteParams,
    ProjectDeleteResponse,
    ProjectImportParams,
    ProjectImportResponse,
    ProjectListParams,
    ProjectListResponse,
    ProjectMoveParams,
    ProjectMoveResponse,
    ProjectReadParams,
    ProjectReadResponse,
    ProjectRoot,
    ProjectSortKey,
    ProjectUpdateParams,
    ProjectUpdateResponse,
)
from treadle.protocol.queue import (
    ThreadQueueAddParams,
    ThreadQueueAddResponse,
    ThreadQueueDeleteParams,
    ThreadQueueDeleteResponse,
    ThreadQueueListParams,
    ThreadQueueListResponse,
    ThreadQueueReorderParams,
    ThreadQueueReorderResponse,
    ThreadQueueStartParams,
    ThreadQueueStartResponse,
    ThreadQueueUpdateParams,
    ThreadQueueUpdateResponse,
)
from treadle.protocol.read_state import (
    ThreadReadStateOperation,
    ThreadReadStateUpdateParams,
    ThreadReadStateUpdateResponse,
)
from treadle.protocol.realtime import (
    CodexResponseHandoffMode,
    ConversationTextRole,
    RealtimeConversationVersion,
    RealtimeOutputModality,
    RealtimeVoice,
    ThreadRealtimeAppendAudioParams,
    ThreadRealtimeAppendAudioResponse,
    ThreadRealtimeAppendSpeechParams,
    ThreadRealtimeAppendSpeechResponse,
    ThreadRealtimeAppendTextParams,
    ThreadRealtimeAppendTextResponse,
    ThreadRealtimeAudioChunk,
    ThreadRealtimeInitialItem,
    ThreadRealtimeListVoicesParams,
    ThreadRealtimeListVoicesResponse,
    ThreadRealtimeStartParams,
    ThreadRealtimeStartResponse,
    ThreadRealtimeStartTransport,
    ThreadRealtimeStopParams,
    ThreadRealtimeStopResponse,
)
from treadle.protocol.remote_control import (
    RemoteControlClientsListOrder,
    RemoteControlClientsListParams,
    RemoteControlClientsListResponse,
    RemoteControlClientsRevokeParams,
    RemoteControlClientsRevokeResponse,
    RemoteControlDisableParams,
    RemoteControlDisableResponse,
    RemoteControlEnableParams,
    RemoteControlEnableResponse,
    RemoteControlPairingStartParams,
    RemoteControlPairingStartResponse,
    RemoteControlPairingStatusParams,
    RemoteControlPairingStatusResponse,
    RemoteControlStatusReadResponse,
)
from treadle.protocol.requirements import (
    BedrockCheckGovCloudRequirementsParams,
    BedrockCheckGovCloudRequirementsResponse,
    ConfigRequirementsReadResponse,
)
from treadle.protocol.sample import (
    ThreadGuardianReviewParams,
    ThreadGuardianReviewResponse,
    ThreadPrepareApprovedPlanParams,
    ThreadPrepareApprovedPlanResponse,
    ThreadSampleCancelParams,
    ThreadSampleCancelResponse,
    ThreadSampleParams,
    ThreadSampleResponse,
)
from treadle.protocol.section import (
    ThreadSectionAppearance,
    ThreadSectionCreateParams,
    ThreadSectionCreateResponse,
    ThreadSectionDeleteParams,
    ThreadSectionDeleteResponse,
    ThreadSectionListParams,
    ThreadSectionListResponse,
    ThreadSectionMoveParams,
    ThreadSectionMoveResponse,
    ThreadSectionUpdateParams,
    ThreadSectionUpdateResponse,
)
from treadle.protocol.settings import ThreadSettingsUpdateParams, ThreadSettingsUpdateResponse
from treadle.protocol.skill import (
    SkillsConfigWriteParams,
    SkillsConfigWriteResponse,
    SkillsExtraRootsSetParams,
    SkillsExtraRootsSetResponse,
    SkillsListExtraRootsForCwd,
    SkillsListParams,
    SkillsListResponse,
)
from treadle.protocol.source import ThreadSource, ThreadSourceKind
from treadle.protocol.thread import ThreadSetNameParams, ThreadSetNameResponse
from treadle.protocol.thread_manage import (
    ThreadArchiveParams,
    ThreadArchiveResponse,
    ThreadCompactStartParams,
    ThreadCompactStartResponse,
    ThreadDeleteParams,
    ThreadDeleteResponse,
    ThreadInjectItemsParams,
    ThreadInjectItemsResponse,
    ThreadListCwdFilter,
    ThreadListParams,
    ThreadListResponse,
    ThreadLoadedListParams,
    ThreadLoadedListResponse,
    ThreadMetadataGitInfoUpdateParams,
    ThreadMetadataUpdateParams,
    ThreadMetadataUpdateResponse,
    ThreadRevertParams,
    ThreadRevertResponse,
    ThreadRollbackParams,
    ThreadRollbackResponse,
    ThreadSortKey,
    ThreadUnarchiveParams,
    ThreadUnarchiveResponse,
    ThreadUnsubscribeParams,
    ThreadUnsubscribeResponse,
)
from treadle.protocol.turn import (
    TurnInterruptParams,
    TurnInterruptResponse,
    TurnItemsView,
    TurnSettingsUpdateParams,
    TurnSettingsUpdateResponse,
)
from treadle.protocol.user_verification import (
    UserVerificationCancelParams,
    UserVerificationCancelResponse,
    UserVerificationDeleteParams,
    UserVerificationDeleteResponse,
    UserVerificationEnrollParams,
    UserVerificationEnrollResponse,
    UserVerificationStatusParams,
    UserVerificationStatusResponse,
    UserVerificationVerifyParams,
    UserVerificationVerifyResponse,
)
from treadle.protocol.windows_sandbox import (
    WindowsSandboxReadinessResponse,
    WindowsSandboxSetupMode,
    WindowsSandboxSetupStartParams,
    WindowsSandboxSetupStartResponse,
)

P = TypeVar("P")
R = TypeVar("R")


class Methods:
    """One method for each request that the client does not wrap in a more convenient form."""

    def request(self, method: Request[P, R], params: P, *, timeout: float | None = None) -> R:
        """Send a request and return its result."""
        raise NotImplementedError

    def read_server_diagnostics(self) -> ServerDiagnosticsResponse:
        """Read the server's diagnostics; there are no options.

        Sends `server/diagnostics`.
        """
        return self.request(client_requests.SERVER_DIAGNOSTICS, ServerDiagnosticsParams())

    def read_user_verification_status(self) -> UserVerificationStatusResponse:
        """Read whether the device can verify its user; the user is not prompted.

        Sends `userVerification/status`.
        """
        return self.request(
            client_requests.USER_VERIFICATION_STATUS, UserVerificationStatusParams()
        )

    def enroll_user_verification(self) -> UserVerificationEnrollResponse:
        """Create a credential on the device, or use the existing one.

        Sends `userVerification/enroll`.
        """
        return self.request(
            client_requests.USER_VERIFICATION_ENROLL, UserVerificationEnrollParams()
        )

    def delete_user_verification(self) -> UserVerificationDeleteResponse:
        """Delete the credential that the device holds.

        Sends `userVerification/delete`.
        """
        return self.request(
            client_requests.USER_VERIFICATION_DELETE, UserVerificationDeleteParams()
        )

    def verify_user(
        self, challenge: str, description: str, title: str
    ) -> UserVerificationVerifyResponse:
        """Ask the user to prove their presence; the title and description are shown.

        Sends `userVerification/verify`.
        """
        return self.request(
            client_requests.USER_VERIFICATION_VERIFY,
            UserVerificationVerifyParams(challenge=challenge, description=description, title=title),
        )

    def cancel_user_verification(self, request_id: RequestId) -> UserVerificationCancelResponse:
        """Cancel an enrolment or a verification that the same connection requested.

        Sends `userVerification/cancel`.
        """
        return self.request(
            client_requests.USER_VERIFICATION_CANCEL,
            UserVerificationCancelParams(request_id=request_id),
        )

    def sample_thread(
        self,
        thread_id: str,
        expected_turn_id: str,
        prompt: str,
        *,
        allow_in_progress_turn: bool = False,
        disable_mcp: bool = False,
        effort: ReasoningEffort | None = None,
        interrupt_on_cancel: bool | None = None,
        responsesapi_client_metadata: dict[str, str] | None = None,
        thread_source: ThreadSource | None = None,
        turn_trigger: str | None = None,
    ) -> ThreadSampleResponse:
        """Ask the model of a loaded thread one question that does not become a turn.

        Sends `thread/sample`.
        """
        return self.request(
            client_requests.THREAD_SAMPLE,
            ThreadSampleParams(
                thread_id=thread_id,
                expected_turn_id=expected_turn_id,
                prompt=prompt,
                allow_in_progress_turn=allow_in_progress_turn,
                disable_mcp=disable_mcp,
                effort=effort,
                interrupt_on_cancel=interrupt_on_cancel,
                responsesapi_client_metadata=responsesapi_client_metadata,
                thread_source=thread_source,
                turn_trigger=turn_trigger,
            ),
        )

    def cancel_thread_sample(self, request_id: RequestId) -> ThreadSampleCancelResponse:
        """Cancel a sample by the id of its request.

        Sends `thread/sample/cancel`.
        """
        return self.request(
            client_requests.THREAD_SAMPLE_CANCEL, ThreadSampleCancelParams(request_id=request_id)
        )

    def archive_thread(self, thread_id: str) -> ThreadArchiveResponse:
        """Archive a stored thread: only lists of archived threads show it.

        Sends `thread/archive`.
        """
        return self.request(
            client_requests.THREAD_ARCHIVE, ThreadArchiveParams(thread_id=thread_id)
        )

    def delete_thread(self, thread_id: str) -> ThreadDeleteResponse:
        """Delete a thread and its stored history permanently.

        Sends `thread/delete`.
        """
        return self.request(client_requests.THREAD_DELETE, ThreadDeleteParams(thread_id=thread_id))

    def unsubscribe_thread(self, thread_id: str) -> ThreadUnsubscribeResponse:
        """Stop receiving events of a thread; it is unloaded after its last subscriber leaves.

        Sends `thread/unsubscribe`.
        """
        return self.request(
            client_requests.THREAD_UNSUBSCRIBE, ThreadUnsubscribeParams(thread_id=thread_id)
        )

    def increment_elicitation(self, thread_id: str) -> ThreadIncrementElicitationResponse:
        """Report that the user faces a question outside the protocol, which pauses timeouts.

        Sends `thread/increment_elicitation`.
        """
        return self.request(
            client_requests.THREAD_INCREMENT_ELICITATION,
            ThreadIncrementElicitationParams(thread_id=thread_id),
        )

    def decrement_elicitation(self, thread_id: str) -> ThreadDecrementElicitationResponse:
        """Report that a question outside the protocol has been answered.

        Sends `thread/decrement_elicitation`.
        """
        return self.request(
            client_requests.THREAD_DECREMENT_ELICITATION,
            ThreadDecrementElicitationParams(thread_id=thread_id),
        )

    def set_thread_name(self, thread_id: str, name: str) -> ThreadSetNameResponse:
        """Set the title of a thread, loaded or not; titles need not be unique.

        Sends `thread/name/set`.
        """
        return self.request(
            client_requests.THREAD_NAME_SET, ThreadSetNameParams(thread_id=thread_id, name=name)
        )

    def request_thread_prediction(
        self, thread_id: str, source_turn_id: str
    ) -> ThreadPredictionRequestResponse:
        """Request a prediction of what follows a turn.

        Sends `thread/prediction/request`.
        """
        return self.request(
            client_requests.THREAD_PREDICTION_REQUEST,
            ThreadPredictionRequestParams(thread_id=thread_id, source_turn_id=source_turn_id),
        )

    def set_thread_goal(
        self,
        thread_id: str,
        *,
        objective: str | None = None,
        origin: ThreadGoalMutationOrigin | None = None,
        status: ThreadGoalStatus | None = None,
        token_budget: Int64 | UnsetType | None = UNSET,
    ) -> ThreadGoalSetResponse:
        """Set or change a thread's goal; omitted fields are unchanged.

        Sends `thread/goal/set`.
        """
        return self.request(
            client_requests.THREAD_GOAL_SET,
            ThreadGoalSetParams(
                thread_id=thread_id,
                objective=objective,
                origin=origin,
                status=status,
                token_budget=token_budget,
            ),
        )

    def get_thread_goal(self, thread_id: str) -> ThreadGoalGetResponse:
        """Read a thread's goal.

        Sends `thread/goal/get`.
        """
        return self.request(
            client_requests.THREAD_GOAL_GET, ThreadGoalGetParams(thread_id=thread_id)
        )

    def clear_thread_goal(
        self, thread_id: str, *, origin: ThreadGoalMutationOrigin | None = None
    ) -> ThreadGoalClearResponse:
        """Clear a thread's goal.

        Sends `thread/goal/clear`.
        """
        return self.request(
            client_requests.THREAD_GOAL_CLEAR,
            ThreadGoalClearParams(thread_id=thread_id, origin=origin),
        )

    def add_to_thread_queue(
        self,
        thread_id: str,
        client_user_message_id: str,
        input: list[UserInput],
        *,
        responsesapi_client_metadata: dict[str, str] | None = None,
    ) -> ThreadQueueAddResponse:
        """Append input to a thread's queue.

        Sends `thread/queue/add`.
        """
        return self.request(
            client_requests.THREAD_QUEUE_ADD,
            ThreadQueueAddParams(
                thread_id=thread_id,
                client_user_message_id=client_user_message_id,
                input=input,
                responsesapi_client_metadata=responsesapi_client_metadata,
            ),
        )

    def list_thread_queue(
        self, thread_id: str, *, cursor: str | None = None, limit: UInt32 | None = None
    ) -> ThreadQueueListResponse:
        """Page through a thread's queue.

        Sends `thread/queue/list`.
        """
        return self.request(
            client_requests.THREAD_QUEUE_LIST,
            ThreadQueueListParams(thread_id=thread_id, cursor=cursor, limit=limit),
        )

    def update_thread_queue(
        self,
        thread_id: str,
        input: list[UserInput],
        queued_submission_id: str,
        *,
        responsesapi_client_metadata: dict[str, str] | None = None,
    ) -> ThreadQueueUpdateResponse:
        """Replace input that is still in the queue.

        Sends `thread/queue/update`.
        """
        return self.request(
            client_requests.THREAD_QUEUE_UPDATE,
            ThreadQueueUpdateParams(
                thread_id=thread_id,
                input=input,
                queued_submission_id=queued_submission_id,
                responsesapi_client_metadata=responsesapi_client_metadata,
            ),
        )

    def delete_from_thread_queue(
        self, thread_id: str, queued_submission_id: str
    ) -> ThreadQueueDeleteResponse:
        """Remove input from the queue.

        Sends `thread/queue/delete`.
        """
        return self.request(
            client_requests.THREAD_QUEUE_DELETE,
            ThreadQueueDeleteParams(thread_id=thread_id, queued_submission_id=queued_submission_id),
        )

    def reorder_thread_queue(
        self, thread_id: str, queued_submission_ids: list[str]
    ) -> ThreadQueueReorderResponse:
        """Set the order of the queue; every queued id must be named once.

        Sends `thread/queue/reorder`.
        """
        return self.request(
            client_requests.THREAD_QUEUE_REORDER,
            ThreadQueueReorderParams(
                thread_id=thread_id, queued_submission_ids=queued_submission_ids
            ),
        )

    def start_thread_queue(
        self, thread_id: str, *, queued_submission_id: str | None = None
    ) -> ThreadQueueStartResponse:
        """Run queued input now, the first if none is named; rejected while a turn is active.

        Sends `thread/queue/start`.
        """
        return self.request(
            client_requests.THREAD_QUEUE_START,
            ThreadQueueStartParams(thread_id=thread_id, queued_submission_id=queued_submission_id),
        )

    def update_thread_metadata(
        self,
        thread_id: str,
        *,
        daybreak_enabled: bool | None = None,
        git_info: ThreadMetadataGitInfoUpdateParams | None = None,
        project_id: str | None = None,
    ) -> ThreadMetadataUpdateResponse:
        """Change the stored metadata of a thread, without loading it.

        Sends `thread/metadata/update`.
        """
        return self.request(
            client_requests.THREAD_METADATA_UPDATE,
            ThreadMetadataUpdateParams(
                thread_id=thread_id,
                daybreak_enabled=daybreak_enabled,
                git_info=git_info,
                project_id=project_id,
            ),
        )

    def add_thread_attachment(
        self, thread_id: str, attachment_type: str, identity_key: str, payload: JsonValue
    ) -> ThreadAttachmentAddResponse:
        """Attach a payload to a thread unless an attachment has the same type and key.

        Sends `thread/attachment/add`.
        """
        return self.request(
            client_requests.THREAD_ATTACHMENT_ADD,
            ThreadAttachmentAddParams(
                thread_id=thread_id,
                attachment_type=attachment_type,
                identity_key=identity_key,
                payload=payload,
            ),
        )

    def list_thread_attachments(
        self, thread_id: str, *, cursor: str | None = None, limit: UInt32 | None = None
    ) -> ThreadAttachmentListResponse:
        """Page through the attachments of a thread.

        Sends `thread/attachment/list`.
        """
        return self.request(
            client_requests.THREAD_ATTACHMENT_LIST,
            ThreadAttachmentListParams(thread_id=thread_id, cursor=cursor, limit=limit),
        )

    def list_attachment_owners(
        self,
        attachment_type: str,
        identity_key: str,
        *,
        archived: bool | None = None,
        cursor: str | None = None,
        limit: UInt32 | None = None,
    ) -> ThreadAttachmentOwnerListResponse:
        """Find the threads that have an attachment; `archived` selects one kind of thread.

        Sends `thread/attachmentOwner/list`.
        """
        return self.request(
            client_requests.THREAD_ATTACHMENT_OWNER_LIST,
            ThreadAttachmentOwnerListParams(
                attachment_type=attachment_type,
                identity_key=identity_key,
                archived=archived,
                cursor=cursor,
                limit=limit,
            ),
        )

    def remove_thread_attachment(
        self, thread_id: str, attachment_type: str, identity_key: str
    ) -> ThreadAttachmentRemoveResponse:
        """Remove the attachment with the given type and key from a thread.

        Sends `thread/attachment/remove`.
        """
        return self.request(
            client_requests.THREAD_ATTACHMENT_REMOVE,
            ThreadAttachmentRemoveParams(
                thread_id=thread_id, attachment_type=attachment_type, identity_key=identity_key
            ),
        )

    def move_thread_to_section(
        self, thread_id: str, section_id: str | None, *, before_thread_id: str | None = None
    ) -> ThreadSectionMoveResponse:
        """Move a thread into a section, to its end or before another thread, or out with null.

        Sends `thread/section/move`.
        """
        return self.request(
            client_requests.THREAD_SECTION_MOVE,
            ThreadSectionMoveParams(
                thread_id=thread_id, section_id=section_id, before_thread_id=before_thread_id
            ),
        )

    def update_thread_settings(
        self,
        thread_id: str,
        *,
        approval_policy: AskForApproval | None = None,
        approvals_reviewer: ApprovalsReviewer | None = None,
        collaboration_mode: CollaborationMode | None = None,
        cwd: str | None = None,
        disabled_plugin_ids: list[str] | None = None,
        effort: ReasoningEffort | None = None,
        environments: list[TurnEnvironmentParams] | None = None,
        model: str | None = None,
        multi_agent_mode: MultiAgentMode | None = None,
        permissions: str | None = None,
        personality: Personality | None = None,
        sandbox_policy: SandboxPolicy | None = None,
        service_tier: str | UnsetType | None = UNSET,
        summary: ReasoningSummary | None = None,
    ) -> ThreadSettingsUpdateResponse:
        """Change the settings of later turns of a thread, without starting one.

        Sends `thread/settings/update`.
        """
        return self.request(
            client_requests.THREAD_SETTINGS_UPDATE,
            ThreadSettingsUpdateParams(
                thread_id=thread_id,
                approval_policy=approval_policy,
                approvals_reviewer=approvals_reviewer,
                collaboration_mode=collaboration_mode,
                cwd=cwd,
                disabled_plugin_ids=disabled_plugin_ids,
                effort=effort,
                environments=environments,
                model=model,
                multi_agent_mode=multi_agent_mode,
                permissions=permissions,
                personality=personality,
                sandbox_policy=sandbox_policy,
                service_tier=service_tier,
                summary=summary,
            ),
        )

    def set_thread_memory_mode(
        self, thread_id: str, mode: ThreadMemoryMode
    ) -> ThreadMemoryModeSetResponse:
        """Set whether a thread takes part in memory.

        Sends `thread/memoryMode/set`.
        """
        return self.request(
            client_requests.THREAD_MEMORY_MODE_SET,
            ThreadMemoryModeSetParams(thread_id=thread_id, mode=mode),
        )

    def read_thread_memory(self, thread_id: str) -> ThreadMemoryReadResponse:
        """Read the summary of memories that a loaded thread uses.

        Sends `thread/memory/read`.
        """
        return self.request(
            client_requests.THREAD_MEMORY_READ, ThreadMemoryReadParams(thread_id=thread_id)
        )

    def read_memory_status(
        self, *, min_consolidated_threads: UInt32 | None = None
    ) -> MemoryStatusResponse:
        """Read whether memory has processed enough threads (default 20, maximum 4096).

        Sends `memory/status`.
        """
        return self.request(
            client_requests.MEMORY_STATUS,
            MemoryStatusParams(min_consolidated_threads=min_consolidated_threads),
        )

    def reset_memory(self) -> MemoryResetResponse:
        """Send the request and return its result.

        Sends `memory/reset`.
        """
        return self.request(client_requests.MEMORY_RESET, NoParams())

    def compress_rollouts(self) -> RolloutCompressResponse:
        """Send the request and return its result.

        Sends `rollout/compress`.
        """
        return self.request(client_requests.ROLLOUT_COMPRESS, NoParams())

    def unarchive_thread(self, thread_id: str) -> ThreadUnarchiveResponse:
        """Restore an archived thread.

        Sends `thread/unarchive`.
        """
        return self.request(
            client_requests.THREAD_UNARCHIVE, ThreadUnarchiveParams(thread_id=thread_id)
        )

    def compact_thread(self, thread_id: str) -> ThreadCompactStartResponse:
        """Compact the history of a thread, in a separate turn.

        Sends `thread/compact/start`.
        """
        return self.request(
            client_requests.THREAD_COMPACT_START, ThreadCompactStartParams(thread_id=thread_id)
        )

    def run_shell_command(
        self, thread_id: str, command: str, *, timeout_ms: Int64 | None = None
    ) -> ThreadShellCommandResponse:
        """Run the user's own shell command in a thread, unsandboxed; the model sees its output.

        Sends `thread/shellCommand`.
        """
        return self.request(
            client_requests.THREAD_SHELL_COMMAND,
            ThreadShellCommandParams(thread_id=thread_id, command=command, timeout_ms=timeout_ms),
        )

    def approve_guardian_denied_action(
        self, thread_id: str, event: JsonValue
    ) -> ThreadApproveGuardianDeniedActionResponse:
        """Override the automatic reviewer for an action that it denied.

        Sends `thread/approveGuardianDeniedAction`.
        """
        return self.request(
            client_requests.THREAD_APPROVE_GUARDIAN_DENIED_ACTION,
            ThreadApproveGuardianDeniedActionParams(thread_id=thread_id, event=event),
        )

    def clean_background_terminals(self, thread_id: str) -> ThreadBackgroundTerminalsCleanResponse:
        """Stop every process that the turns of a thread left running.

        Sends `thread/backgroundTerminals/clean`.
        """
        return self.request(
            client_requests.THREAD_BACKGROUND_TERMINALS_CLEAN,
            ThreadBackgroundTerminalsCleanParams(thread_id=thread_id),
        )

    def list_background_terminals(
        self, thread_id: str, *, cursor: str | None = None, limit: UInt32 | None = None
    ) -> ThreadBackgroundTerminalsListResponse:
        """Page through the processes that the turns of a thread left running.

        Sends `thread/backgroundTerminals/list`.
        """
        return self.request(
            client_requests.THREAD_BACKGROUND_TERMINALS_LIST,
            ThreadBackgroundTerminalsListParams(thread_id=thread_id, cursor=cursor, limit=limit),
        )

    def terminate_background_terminal(
        self, thread_id: str, process_id: str
    ) -> ThreadBackgroundTerminalsTerminateResponse:
        """Stop one of the processes that the turns of a thread left running.

        Sends `thread/backgroundTerminals/terminate`.
        """
        return self.request(
            client_requests.THREAD_BACKGROUND_TERMINALS_TERMINATE,
            ThreadBackgroundTerminalsTerminateParams(thread_id=thread_id, process_id=process_id),
        )

    def roll_back_thread(self, thread_id: str, num_turns: UInt32) -> ThreadRollbackResponse:
        """Drop the last turns of a thread; newer peers use `thread/revert`.

        Sends `thread/rollback`.
        """
        return self.request(
            client_requests.THREAD_ROLLBACK,
            ThreadRollbackParams(thread_id=thread_id, num_turns=num_turns),
        )

    def revert_thread(self, thread_id: str, before_turn_id: str) -> ThreadRevertResponse:
        """Drop a turn and all later ones from the history; files are not changed.

        Sends `thread/revert`.
        """
        return self.request(
            client_requests.THREAD_REVERT,
            ThreadRevertParams(thread_id=thread_id, before_turn_id=before_turn_id),
        )

    def list_threads(
        self,
        *,
        ancestor_thread_id: str | None = None,
        archived: bool | None = None,
        attached_to_thread_id: str | None = None,
        current_account_only: bool = False,
        cursor: str | None = None,
        cwd: ThreadListCwdFilter | None = None,
        excluded_thread_ids: list[str] | None = None,
        include_attached_threads: bool = False,
        limit: UInt32 | None = None,
        model_providers: list[str] | None = None,
        originators: list[str] | None = None,
        parent_thread_id: str | None = None,
        project_id: str | UnsetType | None = UNSET,
        search_term: str | None = None,
        section_id: str | UnsetType | None = UNSET,
        sort_direction: SortDirection | None = None,
        sort_key: ThreadSortKey | None = None,
        source_kinds: list[ThreadSourceKind] | None = None,
        use_state_db_only: bool = False,
    ) -> ThreadListResponse:
        """Page through the stored threads that match every filter, newest first by default.

        Sends `thread/list`.
        """
        return self.request(
            client_requests.THREAD_LIST,
            ThreadListParams(
                ancestor_thread_id=ancestor_thread_id,
                archived=archived,
                attached_to_thread_id=attached_to_thread_id,
                current_account_only=current_account_only,
                cursor=cursor,
                cwd=cwd,
                excluded_thread_ids=excluded_thread_ids,
                include_attached_threads=include_attached_threads,
                limit=limit,
                model_providers=model_providers,
                originators=originators,
                parent_thread_id=parent_thread_id,
                project_id=project_id,
                search_term=search_term,
                section_id=section_id,
                sort_direction=sort_direction,
                sort_key=sort_key,
                source_kinds=source_kinds,
                use_state_db_only=use_state_db_only,
            ),
        )

    def list_projects(
        self,
        *,
        cursor: str | None = None,
        limit: UInt32 | None = None,
        sort_direction: SortDirection | None = None,
        sort_key: ProjectSortKey | None = None,
    ) -> ProjectListResponse:
        """Page through the projects, by position unless recency is requested.

        Sends `project/list`.
        """
        return self.request(
            client_requests.PROJECT_LIST,
            ProjectListParams(
                cursor=cursor, limit=limit, sort_direction=sort_direction, sort_key=sort_key
            ),
        )

    def read_project(self, project_id: str) -> ProjectReadResponse:
        """Read one project.

        Sends `project/read`.
        """
        return self.request(client_requests.PROJECT_READ, ProjectReadParams(project_id=project_id))

    def create_project(
        self,
        idempotency_key: str,
        name: str,
        roots: list[ProjectRoot],
        *,
        metadata: dict[str, str] | None = None,
    ) -> ProjectCreateResponse:
        """Create a project at the end of the list; a retry with the same key creates no second one.

        Sends `project/create`.
        """
        return self.request(
            client_requests.PROJECT_CREATE,
            ProjectCreateParams(
                idempotency_key=idempotency_key, name=name, roots=roots, metadata=metadata
            ),
        )

    def import_project(
        self,
        idempotency_key: str,
        name: str,
        roots: list[ProjectRoot],
        *,
        metadata: dict[str, str] | None = None,
        threads: list[str] | None = None,
    ) -> ProjectImportResponse:
        """Create a project and add existing threads to it.

        Sends `project/import`.
        """
        return self.request(
            client_requests.PROJECT_IMPORT,
            ProjectImportParams(
                idempotency_key=idempotency_key,
                name=name,
                roots=roots,
                metadata=metadata,
                threads=threads,
            ),
        )

    def update_project(
        self,
        project_id: str,
        *,
        metadata: dict[str, str] | None = None,
        name: str | None = None,
        roots: list[ProjectRoot] | None = None,
    ) -> ProjectUpdateResponse:
        """Change the given fields of a project; roots and metadata are replaced as a whole.

        Sends `project/update`.
        """
        return self.request(
            client_requests.PROJECT_UPDATE,
            ProjectUpdateParams(project_id=project_id, metadata=metadata, name=name, roots=roots),
        )

    def move_project(
        self, project_id: str, *, before_project_id: str | None = None
    ) -> ProjectMoveResponse:
        """Move a project before another one, or to the end if none is named.

        Sends `project/move`.
        """
        return self.request(
            client_requests.PROJECT_MOVE,
            ProjectMoveParams(project_id=project_id, before_project_id=before_project_id),
        )

    def delete_project(self, project_id: str) -> ProjectDeleteResponse:
        """Delete a project permanently.

        Sends `project/delete`.
        """
        return self.request(
            client_requests.PROJECT_DELETE, ProjectDeleteParams(project_id=project_id)
        )

    def list_thread_sections(
        self, *, cursor: str | None = None, limit: UInt32 | None = None
    ) -> ThreadSectionListResponse:
        """Page through the sections.

        Sends `threadSection/list`.
        """
        return self.request(
            client_requests.THREAD_SECTION_LIST, ThreadSectionListParams(cursor=cursor, limit=limit)
        )

    def create_thread_section(
        self, name: str, *, appearance: ThreadSectionAppearance | None = None
    ) -> ThreadSectionCreateResponse:
        """Add an empty section.

        Sends `threadSection/create`.
        """
        return self.request(
            client_requests.THREAD_SECTION_CREATE,
            ThreadSectionCreateParams(name=name, appearance=appearance),
        )

    def update_thread_section(
        self,
        name: str,
        section_id: str,
        *,
        appearance: ThreadSectionAppearance | UnsetType | None = UNSET,
    ) -> ThreadSectionUpdateResponse:
        """Rename a section, and change its appearance if given.

        Sends `threadSection/update`.
        """
        return self.request(
            client_requests.THREAD_SECTION_UPDATE,
            ThreadSectionUpdateParams(name=name, section_id=section_id, appearance=appearance),
        )

    def delete_thread_section(self, section_id: str) -> ThreadSectionDeleteResponse:
        """Delete a section; its threads remain.

        Sends `threadSection/delete`.
        """
        return self.request(
            client_requests.THREAD_SECTION_DELETE, ThreadSectionDeleteParams(section_id=section_id)
        )

    def search_threads(
        self,
        search_term: str,
        *,
        archived: bool | None = None,
        current_account_only: bool = False,
        cursor: str | None = None,
        include_attached_threads: bool = False,
        limit: UInt32 | None = None,
        sort_direction: SortDirection | None = None,
        sort_key: ThreadSearchSortKey | None = None,
        source_kinds: list[ThreadSourceKind] | None = None,
    ) -> ThreadSearchResponse:
        """Search for threads by the text of their conversation.

        Sends `thread/search`.
        """
        return self.request(
            client_requests.THREAD_SEARCH,
            ThreadSearchParams(
                search_term=search_term,
                archived=archived,
                current_account_only=current_account_only,
                cursor=cursor,
                include_attached_threads=include_attached_threads,
                limit=limit,
                sort_direction=sort_direction,
                sort_key=sort_key,
                source_kinds=source_kinds,
            ),
        )

    def search_thread_occurrences(
        self,
        thread_id: str,
        search_term: str,
        *,
        cursor: str | None = None,
        limit: UInt32 | None = None,
    ) -> ThreadSearchOccurrencesResponse:
        """Search the visible messages of one thread for a phrase, ignoring case.

        Sends `thread/searchOccurrences`.
        """
        return self.request(
            client_requests.THREAD_SEARCH_OCCURRENCES,
            ThreadSearchOccurrencesParams(
                thread_id=thread_id, search_term=search_term, cursor=cursor, limit=limit
            ),
        )

    def list_loaded_threads(
        self, *, cursor: str | None = None, limit: UInt32 | None = None
    ) -> ThreadLoadedListResponse:
        """Page through the loaded threads; without a limit, all of them.

        Sends `thread/loaded/list`.
        """
        return self.request(
            client_requests.THREAD_LOADED_LIST, ThreadLoadedListParams(cursor=cursor, limit=limit)
        )

    def update_thread_read_state(
        self, thread_id: str, expected_revision: str, operation: ThreadReadStateOperation
    ) -> ThreadReadStateUpdateResponse:
        """Mark a thread as read or unread; rejected if the revision is no longer current.

        Sends `thread/readState/update`.
        """
        return self.request(
            client_requests.THREAD_READ_STATE_UPDATE,
            ThreadReadStateUpdateParams(
                thread_id=thread_id, expected_revision=expected_revision, operation=operation
            ),
        )

    def list_turns(
        self,
        thread_id: str,
        *,
        cursor: str | None = None,
        items_view: TurnItemsView | None = None,
        limit: UInt32 | None = None,
        sort_direction: SortDirection | None = None,
    ) -> ThreadTurnsListResponse:
        """Page through the turns of a thread, newest first by default.

        Sends `thread/turns/list`.
        """
        return self.request(
            client_requests.THREAD_TURNS_LIST,
            ThreadTurnsListParams(
                thread_id=thread_id,
                cursor=cursor,
                items_view=items_view,
                limit=limit,
                sort_direction=sort_direction,
            ),
        )

    def list_items(
        self,
        thread_id: str,
        *,
        cursor: ThreadItemsListCursor | None = None,
        defer_output: ThreadItemOutputDeferral | None = None,
        limit: UInt32 | None = None,
        sort_direction: SortDirection | None = None,
        turn_id: str | None = None,
    ) -> ThreadItemsListResponse:
        """Page through the items of a thread, or of one of its turns.

        Sends `thread/items/list`.
        """
        return self.request(
            client_requests.THREAD_ITEMS_LIST,
            ThreadItemsListParams(
                thread_id=thread_id,
                cursor=cursor,
                defer_output=defer_output,
                limit=limit,
                sort_direction=sort_direction,
                turn_id=turn_id,
            ),
        )

    def read_items(
        self, thread_id: str, turn_id: str, item_ids: list[str]
    ) -> ThreadItemsReadResponse:
        """Read up to 100 items of a turn by their ids.

        Sends `thread/items/read`.
        """
        return self.request(
            client_requests.THREAD_ITEMS_READ,
            ThreadItemsReadParams(thread_id=thread_id, turn_id=turn_id, item_ids=item_ids),
        )

    def assess_injected_command(self, thread_id: str) -> ThreadGuardianReviewResponse:
        """Let the guardian assess the last command that was injected into an idle thread.

        Sends `thread/guardianReview`.
        """
        return self.request(
            client_requests.THREAD_GUARDIAN_REVIEW, ThreadGuardianReviewParams(thread_id=thread_id)
        )

    def inject_items(self, thread_id: str, items: list[JsonValue]) -> ThreadInjectItemsResponse:
        """Append items of the Responses API to the model context, without a turn.

        Sends `thread/inject_items`.
        """
        return self.request(
            client_requests.THREAD_INJECT_ITEMS,
            ThreadInjectItemsParams(thread_id=thread_id, items=items),
        )

    def prepare_approved_plan(
        self, thread_id: str, markdown: str, *, attachment_path: str | None = None
    ) -> ThreadPrepareApprovedPlanResponse:
        """Prepare an approved plan for the first turn of a new thread.

        Sends `thread/prepareApprovedPlan`.
        """
        return self.request(
            client_requests.THREAD_PREPARE_APPROVED_PLAN,
            ThreadPrepareApprovedPlanParams(
                thread_id=thread_id, markdown=markdown, attachment_path=attachment_path
            ),
        )

    def list_skills(
        self,
        *,
        cwds: list[str] | None = None,
        force_reload: bool = False,
        per_cwd_extra_user_roots: list[SkillsListExtraRootsForCwd] | None = None,
    ) -> SkillsListResponse:
        """List the skills of some working directories, by default the server's own.

        Sends `skills/list`.
        """
        return self.request(
            client_requests.SKILLS_LIST,
            SkillsListParams(
                cwds=cwds or [],
                force_reload=force_reload,
                per_cwd_extra_user_roots=per_cwd_extra_user_roots,
            ),
        )

    def set_extra_skill_roots(
        self, extra_roots: list[AbsolutePathBuf]
    ) -> SkillsExtraRootsSetResponse:
        """Set the folders to search for skills besides the usual ones; replaces the last set.

        Sends `skills/extraRoots/set`.
        """
        return self.request(
            client_requests.SKILLS_EXTRA_ROOTS_SET,
            SkillsExtraRootsSetParams(extra_roots=extra_roots),
        )

    def list_hooks(
        self, *, cwds: list[str] | None = None, thread_id: str | None = None
    ) -> HooksListResponse:
        """List the hooks that apply in some folders, by default the server's own.

        Sends `hooks/list`.
        """
        return self.request(
            client_requests.HOOKS_LIST, HooksListParams(cwds=cwds or [], thread_id=thread_id)
        )

    def add_marketplace(
        self, source: str, *, ref_name: str | None = None, sparse_paths: list[str] | None = None
    ) -> MarketplaceAddResponse:
        """Fetch a marketplace from its source, optionally a branch or tag and a part of it.

        Sends `marketplace/add`.
        """
        return self.request(
            client_requests.MARKETPLACE_ADD,
            MarketplaceAddParams(source=source, ref_name=ref_name, sparse_paths=sparse_paths),
        )

    def remove_marketplace(self, marketplace_name: str) -> MarketplaceRemoveResponse:
        """Remove a marketplace and its files.

        Sends `marketplace/remove`.
        """
        return self.request(
            client_requests.MARKETPLACE_REMOVE,
            MarketplaceRemoveParams(marketplace_name=marketplace_name),
        )

    def upgrade_marketplace(
        self, *, marketplace_name: str | None = None
    ) -> MarketplaceUpgradeResponse:
        """Update one marketplace, or all of them if none is named.

        Sends `marketplace/upgrade`.
        """
        return self.request(
            client_requests.MARKETPLACE_UPGRADE,
            MarketplaceUpgradeParams(marketplace_name=marketplace_name),
        )

    def list_plugins(
        self,
        *,
        cwds: list[AbsolutePathBuf] | None = None,
        force_refetch: bool = False,
        marketplace_kinds: list[PluginListMarketplaceKind] | None = None,
        force_remote_sync: bool = False,
    ) -> PluginListResponse:
        """List the plugins of every available marketplace.

        Sends `plugin/list`.
        """
        return self.request(
            client_requests.PLUGIN_LIST,
            PluginListParams(
                cwds=cwds,
                force_refetch=force_refetch,
                marketplace_kinds=marketplace_kinds,
                force_remote_sync=force_remote_sync,
            ),
        )

    def search_plugins(
        self,
        search_term: str,
        *,
        cursor: str | None = None,
        cwds: list[AbsolutePathBuf] | None = None,
        limit: UInt32 | None = None,
        scope: PluginSearchScope | None = None,
    ) -> PluginSearchResponse:
        """Search for plugins by a word.

        Sends `plugin/search`.
        """
        return self.request(
            client_requests.PLUGIN_SEARCH,
            PluginSearchParams(
                search_term=search_term, cursor=cursor, cwds=cwds, limit=limit, scope=scope
            ),
        )

    def list_installed_plugins(
        self,
        *,
        cwds: list[AbsolutePathBuf] | None = None,
        install_suggestion_plugin_names: list[str] | None = None,
    ) -> PluginInstalledResponse:
        """List the installed plugins, plus some that could be suggested.

        Sends `plugin/installed`.
        """
        return self.request(
            client_requests.PLUGIN_INSTALLED,
            PluginInstalledParams(
                cwds=cwds, install_suggestion_plugin_names=install_suggestion_plugin_names
            ),
        )

    def reconcile_plugins(self, *, reason: str | None = None) -> PluginReconcileResponse:
        """Synchronize the installed plugins with the remote catalogue.

        Sends `plugin/reconcile`.
        """
        return self.request(client_requests.PLUGIN_RECONCILE, PluginReconcileParams(reason=reason))

    def read_plugin(
        self,
        plugin_name: str,
        *,
        marketplace_path: Path | AbsolutePathBuf | None = None,
        remote_marketplace_name: str | None = None,
    ) -> PluginReadResponse:
        """Read the details of one plugin of a marketplace.

        Sends `plugin/read`.
        """
        return self.request(
            client_requests.PLUGIN_READ,
            PluginReadParams(
                plugin_name=plugin_name,
                marketplace_path=None if marketplace_path is None else str(marketplace_path),
                remote_marketplace_name=remote_marketplace_name,
            ),
        )

    def read_plugin_skill(
        self, remote_marketplace_name: str, remote_plugin_id: str, skill_name: str
    ) -> PluginSkillReadResponse:
        """Read the text of a skill from a plugin of the remote catalogue.

        Sends `plugin/skill/read`.
        """
        return self.request(
            client_requests.PLUGIN_SKILL_READ,
            PluginSkillReadParams(
                remote_marketplace_name=remote_marketplace_name,
                remote_plugin_id=remote_plugin_id,
                skill_name=skill_name,
            ),
        )

    def save_plugin_share(
        self,
        plugin_path: Path | AbsolutePathBuf,
        *,
        discoverability: PluginShareDiscoverability | None = None,
        remote_plugin_id: str | None = None,
        share_targets: list[PluginShareTarget] | None = None,
    ) -> PluginShareSaveResponse:
        """Upload a plugin to share; with a remote id, replace the earlier upload.

        Sends `plugin/share/save`.
        """
        return self.request(
            client_requests.PLUGIN_SHARE_SAVE,
            PluginShareSaveParams(
                plugin_path=str(plugin_path),
                discoverability=discoverability,
                remote_plugin_id=remote_plugin_id,
                share_targets=share_targets,
            ),
        )

    def update_plugin_share_targets(
        self,
        discoverability: PluginShareUpdateDiscoverability,
        remote_plugin_id: str,
        share_targets: list[PluginShareTarget],
    ) -> PluginShareUpdateTargetsResponse:
        """Set who may find and use a shared plugin; the list replaces the old one.

        Sends `plugin/share/updateTargets`.
        """
        return self.request(
            client_requests.PLUGIN_SHARE_UPDATE_TARGETS,
            PluginShareUpdateTargetsParams(
                discoverability=discoverability,
                remote_plugin_id=remote_plugin_id,
                share_targets=share_targets,
            ),
        )

    def list_plugin_shares(self) -> PluginShareListResponse:
        """List the plugins that the user shares; there are no options.

        Sends `plugin/share/list`.
        """
        return self.request(client_requests.PLUGIN_SHARE_LIST, PluginShareListParams())

    def check_out_plugin_share(self, remote_plugin_id: str) -> PluginShareCheckoutResponse:
        """Fetch a shared plugin to this machine in order to edit it.

        Sends `plugin/share/checkout`.
        """
        return self.request(
            client_requests.PLUGIN_SHARE_CHECKOUT,
            PluginShareCheckoutParams(remote_plugin_id=remote_plugin_id),
        )

    def delete_plugin_share(self, remote_plugin_id: str) -> PluginShareDeleteResponse:
        """Stop sharing a plugin.

        Sends `plugin/share/delete`.
        """
        return self.request(
            client_requests.PLUGIN_SHARE_DELETE,
            PluginShareDeleteParams(remote_plugin_id=remote_plugin_id),
        )

    def read_apps(
        self, app_ids: list[str], *, include_tools: bool = False, thread_id: str | None = None
    ) -> AppsReadResponse:
        """Fetch the details of at most 100 apps.

        Sends `app/read`.
        """
        return self.request(
            client_requests.APP_READ,
            AppsReadParams(app_ids=app_ids, include_tools=include_tools, thread_id=thread_id),
        )

    def list_apps(
        self,
        *,
        cursor: str | None = None,
        force_refetch: bool = False,
        limit: UInt32 | None = None,
        thread_id: str | None = None,
    ) -> AppsListResponse:
        """Page through the apps that the user has or could install.

        Sends `app/list`.
        """
        return self.request(
            client_requests.APP_LIST,
            AppsListParams(
                cursor=cursor, force_refetch=force_refetch, limit=limit, thread_id=thread_id
            ),
        )

    def list_installed_apps(
        self, *, force_refresh: bool = False, thread_id: str | None = None
    ) -> AppsInstalledResponse:
        """List the installed apps and whether the model can call them.

        Sends `app/installed`.
        """
        return self.request(
            client_requests.APP_INSTALLED,
            AppsInstalledParams(force_refresh=force_refresh, thread_id=thread_id),
        )

    def create_directory(
        self, path: Path | AbsolutePathBuf, *, recursive: bool | None = None
    ) -> FsCreateDirectoryResponse:
        """Create a folder.

        Sends `fs/createDirectory`.
        """
        return self.request(
            client_requests.FS_CREATE_DIRECTORY,
            FsCreateDirectoryParams(path=str(path), recursive=recursive),
        )

    def get_file_metadata(self, path: Path | AbsolutePathBuf) -> FsGetMetadataResponse:
        """Read the metadata of a path.

        Sends `fs/getMetadata`.
        """
        return self.request(client_requests.FS_GET_METADATA, FsGetMetadataParams(path=str(path)))

    def read_directory(self, path: Path | AbsolutePathBuf) -> FsReadDirectoryResponse:
        """List the children of a folder, not recursively.

        Sends `fs/readDirectory`.
        """
        return self.request(
            client_requests.FS_READ_DIRECTORY, FsReadDirectoryParams(path=str(path))
        )

    def remove_file(
        self,
        path: Path | AbsolutePathBuf,
        *,
        force: bool | None = None,
        recursive: bool | None = None,
    ) -> FsRemoveResponse:
        """Remove a file or a folder; by default recursively, and without error if missing.

        Sends `fs/remove`.
        """
        return self.request(
            client_requests.FS_REMOVE,
            FsRemoveParams(path=str(path), force=force, recursive=recursive),
        )

    def copy_file(
        self,
        destination_path: Path | AbsolutePathBuf,
        source_path: Path | AbsolutePathBuf,
        *,
        recursive: bool = False,
    ) -> FsCopyResponse:
        """Copy a file, or with `recursive` a folder; devices and sockets are skipped.

        Sends `fs/copy`.
        """
        return self.request(
            client_requests.FS_COPY,
            FsCopyParams(
                destination_path=str(destination_path),
                source_path=str(source_path),
                recursive=recursive,
            ),
        )

    def watch_files(
        self, path: Path | AbsolutePathBuf, *, watch_id: str | None = None
    ) -> FsWatchResponse:
        """Send `fs/changed` to this connection whenever a file or folder changes.

        Sends `fs/watch`.
        """
        return self.request(
            client_requests.FS_WATCH, FsWatchParams(path=str(path), watch_id=watch_id)
        )

    def unwatch_files(self, watch_id: str) -> FsUnwatchResponse:
        """End a watch.

        Sends `fs/unwatch`.
        """
        return self.request(client_requests.FS_UNWATCH, FsUnwatchParams(watch_id=watch_id))

    def write_skill_config(
        self, *, enabled: bool, name: str | None = None, path: Path | AbsolutePathBuf | None = None
    ) -> SkillsConfigWriteResponse:
        """Enable or disable a skill permanently, by its path or by its name, not both.

        Sends `skills/config/write`.
        """
        return self.request(
            client_requests.SKILLS_CONFIG_WRITE,
            SkillsConfigWriteParams(
                enabled=enabled, name=name, path=None if path is None else str(path)
            ),
        )

    def install_plugin(
        self,
        plugin_name: str,
        *,
        install_attempt_id: str | None = None,
        marketplace_path: Path | AbsolutePathBuf | None = None,
        remote_marketplace_name: str | None = None,
        force_remote_sync: bool = False,
    ) -> PluginInstallResponse:
        """Install a plugin that a marketplace lists.

        Sends `plugin/install`.
        """
        return self.request(
            client_requests.PLUGIN_INSTALL,
            PluginInstallParams(
                plugin_name=plugin_name,
                install_attempt_id=install_attempt_id,
                marketplace_path=None if marketplace_path is None else str(marketplace_path),
                remote_marketplace_name=remote_marketplace_name,
                force_remote_sync=force_remote_sync,
            ),
        )

    def uninstall_plugin(
        self, plugin_id: str, *, force_remote_sync: bool = False
    ) -> PluginUninstallResponse:
        """Remove an installed plugin and the user's settings for it.

        Sends `plugin/uninstall`.
        """
        return self.request(
            client_requests.PLUGIN_UNINSTALL,
            PluginUninstallParams(plugin_id=plugin_id, force_remote_sync=force_remote_sync),
        )

    def update_turn_settings(
        self,
        thread_id: str,
        turn_id: str,
        *,
        approvals_reviewer: ApprovalsReviewer | None = None,
        effort: ReasoningEffort | None = None,
        environments: list[TurnEnvironmentParams] | None = None,
        model: str | None = None,
        service_tier: str | UnsetType | None = UNSET,
        summary: ReasoningSummary | None = None,
    ) -> TurnSettingsUpdateResponse:
        """Change the settings of the active turn; later turns are not affected.

        Sends `turn/settings/update`.
        """
        return self.request(
            client_requests.TURN_SETTINGS_UPDATE,
            TurnSettingsUpdateParams(
                thread_id=thread_id,
                turn_id=turn_id,
                approvals_reviewer=approvals_reviewer,
                effort=effort,
                environments=environments,
                model=model,
                service_tier=service_tier,
                summary=summary,
            ),
        )

    def interrupt_turn(self, thread_id: str, turn_id: str) -> TurnInterruptResponse:
        """Stop the active turn; background commands keep running.

        Sends `turn/interrupt`.
        """
        return self.request(
            client_requests.TURN_INTERRUPT,
            TurnInterruptParams(thread_id=thread_id, turn_id=turn_id),
        )

    def start_realtime(
        self,
        thread_id: str,
        *,
        backend_reasoning_status: bool = False,
        client_managed_handoffs: bool | None = None,
        codex_response_handoff_channel_prefixes: dict[str, list[str]] | None = None,
        codex_response_handoff_mode: CodexResponseHandoffMode | None = None,
        codex_response_item_prefix: str | None = None,
        codex_responses_as_items: bool | None = None,
        delegation_ack_filler: bool | None = None,
        flush_transcript_tail_on_session_end: bool | None = None,
        include_startup_context: bool | None = None,
        initial_items: list[ThreadRealtimeInitialItem] | None = None,
        model: str | None = None,
        output_modality: RealtimeOutputModality | None = None,
        prompt: str | UnsetType | None = UNSET,
        realtime_end_instructions: str | None = None,
        realtime_session_id: str | None = None,
        voice_session_id: str | None = None,
        realtime_start_instructions: str | None = None,
        transport: ThreadRealtimeStartTransport | None = None,
        version: RealtimeConversationVersion | None = None,
        voice: RealtimeVoice | None = None,
        session_id: str | None = None,
    ) -> ThreadRealtimeStartResponse:
        """Open a realtime session beside the turns of a thread.

        Sends `thread/realtime/start`.
        """
        return self.request(
            client_requests.THREAD_REALTIME_START,
            ThreadRealtimeStartParams(
                thread_id=thread_id,
                backend_reasoning_status=backend_reasoning_status,
                client_managed_handoffs=client_managed_handoffs,
                codex_response_handoff_channel_prefixes=codex_response_handoff_channel_prefixes,
                codex_response_handoff_mode=codex_response_handoff_mode,
                codex_response_item_prefix=codex_response_item_prefix,
                codex_responses_as_items=codex_responses_as_items,
                delegation_ack_filler=delegation_ack_filler,
                flush_transcript_tail_on_session_end=flush_transcript_tail_on_session_end,
                include_startup_context=include_startup_context,
                initial_items=initial_items,
                model=model,
                output_modality=output_modality,
                prompt=prompt,
                realtime_end_instructions=realtime_end_instructions,
                realtime_session_id=realtime_session_id,
                voice_session_id=voice_session_id,
                realtime_start_instructions=realtime_start_instructions,
                transport=transport,
                version=version,
                voice=voice,
                session_id=session_id,
            ),
        )

    def append_realtime_audio(
        self, thread_id: str, audio: ThreadRealtimeAudioChunk
    ) -> ThreadRealtimeAppendAudioResponse:
        """Send a chunk of audio to the realtime session.

        Sends `thread/realtime/appendAudio`.
        """
        return self.request(
            client_requests.THREAD_REALTIME_APPEND_AUDIO,
            ThreadRealtimeAppendAudioParams(thread_id=thread_id, audio=audio),
        )

    def append_realtime_text(
        self, thread_id: str, text: str, *, role: ConversationTextRole = "user"
    ) -> ThreadRealtimeAppendTextResponse:
        """Send a text to the realtime session.

        Sends `thread/realtime/appendText`.
        """
        return self.request(
            client_requests.THREAD_REALTIME_APPEND_TEXT,
            ThreadRealtimeAppendTextParams(thread_id=thread_id, text=text, role=role),
        )

    def append_realtime_speech(
        self, thread_id: str, text: str
    ) -> ThreadRealtimeAppendSpeechResponse:
        """Make the realtime session speak a text.

        Sends `thread/realtime/appendSpeech`.
        """
        return self.request(
            client_requests.THREAD_REALTIME_APPEND_SPEECH,
            ThreadRealtimeAppendSpeechParams(thread_id=thread_id, text=text),
        )

    def stop_realtime(self, thread_id: str) -> ThreadRealtimeStopResponse:
        """End the realtime session of a thread.

        Sends `thread/realtime/stop`.
        """
        return self.request(
            client_requests.THREAD_REALTIME_STOP, ThreadRealtimeStopParams(thread_id=thread_id)
        )

    def list_timeline(
        self, thread_id: str, *, cursor: str | None = None, limit: UInt32 | None = None
    ) -> ThreadTimelineListResponse:
        """Page through the interleaved turns and realtime sessions of a thread.

        Sends `thread/timeline/list`.
        """
        return self.request(
            client_requests.THREAD_TIMELINE_LIST,
            ThreadTimelineListParams(thread_id=thread_id, cursor=cursor, limit=limit),
        )

    def list_realtime_voices(self) -> ThreadRealtimeListVoicesResponse:
        """List the available voices.

        Sends `thread/realtime/listVoices`.
        """
        return self.request(
            client_requests.THREAD_REALTIME_LIST_VOICES, ThreadRealtimeListVoicesParams()
        )

    def list_models(
        self,
        *,
        cursor: str | None = None,
        include_hidden: bool | None = None,
        limit: UInt32 | None = None,
        model_provider: str | None = None,
    ) -> ModelListResponse:
        """Page through the models; hidden ones are included only on request.

        Sends `model/list`.
        """
        return self.request(
            client_requests.MODEL_LIST,
            ModelListParams(
                cursor=cursor,
                include_hidden=include_hidden,
                limit=limit,
                model_provider=model_provider,
            ),
        )

    def read_gateway_oauth(self, *, model_provider: str | None = None) -> GatewayOAuthReadResponse:
        """Read whether a configured provider is signed in, by default the current one.

        Sends `account/gatewayOAuth/read`.
        """
        return self.request(
            client_requests.ACCOUNT_GATEWAY_OAUTH_READ,
            GatewayOAuthReadParams(model_provider=model_provider),
        )

    def log_in_to_gateway(
        self, *, device_auth: bool = False, model_provider: str | None = None
    ) -> GatewayOAuthLoginResponse:
        """Sign in to a configured provider, by default the current one.

        Sends `account/gatewayOAuth/login`.
        """
        return self.request(
            client_requests.ACCOUNT_GATEWAY_OAUTH_LOGIN,
            GatewayOAuthLoginParams(device_auth=device_auth, model_provider=model_provider),
        )

    def cancel_gateway_login(self) -> GatewayOAuthCancelResponse:
        """Send the request and return its result.

        Sends `account/gatewayOAuth/cancel`.
        """
        return self.request(client_requests.ACCOUNT_GATEWAY_OAUTH_CANCEL, NoParams())

    def list_model_providers(self) -> ModelProviderListResponse:
        """List the configured providers.

        Sends `modelProvider/list`.
        """
        return self.request(client_requests.MODEL_PROVIDER_LIST, ModelProviderListParams())

    def write_model_provider_config(
        self, settings: ProviderSettingsPatch
    ) -> ModelProviderConfigWriteResponse:
        """Write the settings of one provider to the user's configuration.

        Sends `modelProvider/config/write`.
        """
        return self.request(
            client_requests.MODEL_PROVIDER_CONFIG_WRITE,
            ModelProviderConfigWriteParams(settings=settings),
        )

    def read_model_provider_capabilities(self) -> ModelProviderCapabilitiesReadResponse:
        """Read what the configured provider supports beyond text.

        Sends `modelProvider/capabilities/read`.
        """
        return self.request(
            client_requests.MODEL_PROVIDER_CAPABILITIES_READ, ModelProviderCapabilitiesReadParams()
        )

    def list_experimental_features(
        self,
        *,
        cursor: str | None = None,
        limit: UInt32 | None = None,
        thread_id: str | None = None,
    ) -> ExperimentalFeatureListResponse:
        """Page through the feature flags, as seen by one loaded thread if it is named.

        Sends `experimentalFeature/list`.
        """
        return self.request(
            client_requests.EXPERIMENTAL_FEATURE_LIST,
            ExperimentalFeatureListParams(cursor=cursor, limit=limit, thread_id=thread_id),
        )

    def list_permission_profiles(
        self, *, cursor: str | None = None, cwd: str | None = None, limit: UInt32 | None = None
    ) -> PermissionProfileListResponse:
        """Page through the available profiles for a folder.

        Sends `permissionProfile/list`.
        """
        return self.request(
            client_requests.PERMISSION_PROFILE_LIST,
            PermissionProfileListParams(cursor=cursor, cwd=cwd, limit=limit),
        )

    def set_experimental_features(
        self, enablement: dict[str, bool]
    ) -> ExperimentalFeatureEnablementSetResponse:
        """Enable or disable features until the server exits; features not named are unchanged.

        Sends `experimentalFeature/enablement/set`.
        """
        return self.request(
            client_requests.EXPERIMENTAL_FEATURE_ENABLEMENT_SET,
            ExperimentalFeatureEnablementSetParams(enablement=enablement),
        )

    def enable_remote_control(self, *, ephemeral: bool = False) -> RemoteControlEnableResponse:
        """Allow paired devices to control the server, permanently or, if ephemeral, for now.

        Sends `remoteControl/enable`.
        """
        return self.request(
            client_requests.REMOTE_CONTROL_ENABLE, RemoteControlEnableParams(ephemeral=ephemeral)
        )

    def disable_remote_control(self, *, ephemeral: bool = False) -> RemoteControlDisableResponse:
        """Disable remote control, permanently or, if ephemeral, for this process.

        Sends `remoteControl/disable`.
        """
        return self.request(
            client_requests.REMOTE_CONTROL_DISABLE, RemoteControlDisableParams(ephemeral=ephemeral)
        )

    def read_remote_control_status(self) -> RemoteControlStatusReadResponse:
        """Send the request and return its result.

        Sends `remoteControl/status/read`.
        """
        return self.request(client_requests.REMOTE_CONTROL_STATUS_READ, NoParams())

    def start_remote_control_pairing(
        self, *, manual_code: bool = False
    ) -> RemoteControlPairingStartResponse:
        """Request a code that pairs a device, optionally also one to type.

        Sends `remoteControl/pairing/start`.
        """
        return self.request(
            client_requests.REMOTE_CONTROL_PAIRING_START,
            RemoteControlPairingStartParams(manual_code=manual_code),
        )

    def read_remote_control_pairing(
        self, *, manual_pairing_code: str | None = None, pairing_code: str | None = None
    ) -> RemoteControlPairingStatusResponse:
        """Read whether a code was used; give it in either of its forms.

        Sends `remoteControl/pairing/status`.
        """
        return self.request(
            client_requests.REMOTE_CONTROL_PAIRING_STATUS,
            RemoteControlPairingStatusParams(
                manual_pairing_code=manual_pairing_code, pairing_code=pairing_code
            ),
        )

    def list_remote_control_clients(
        self,
        environment_id: str,
        *,
        cursor: str | None = None,
        limit: UInt32 | None = None,
        order: RemoteControlClientsListOrder | None = None,
    ) -> RemoteControlClientsListResponse:
        """Page through the devices paired with an environment.

        Sends `remoteControl/client/list`.
        """
        return self.request(
            client_requests.REMOTE_CONTROL_CLIENT_LIST,
            RemoteControlClientsListParams(
                environment_id=environment_id, cursor=cursor, limit=limit, order=order
            ),
        )

    def revoke_remote_control_client(
        self, client_id: str, environment_id: str
    ) -> RemoteControlClientsRevokeResponse:
        """Revoke a device's permission to control the server.

        Sends `remoteControl/client/revoke`.
        """
        return self.request(
            client_requests.REMOTE_CONTROL_CLIENT_REVOKE,
            RemoteControlClientsRevokeParams(client_id=client_id, environment_id=environment_id),
        )

    def list_collaboration_modes(self) -> CollaborationModeListResponse:
        """List the built-in modes; there are too few for pages.

        Sends `collaborationMode/list`.
        """
        return self.request(client_requests.COLLABORATION_MODE_LIST, CollaborationModeListParams())

    def call_mock_method(self, *, value: str | None = None) -> MockExperimentalMethodResponse:
        """Call a method that does nothing, to test the gate on experimental methods.

        Sends `mock/experimentalMethod`.
        """
        return self.request(
            client_requests.MOCK_EXPERIMENTAL_METHOD, MockExperimentalMethodParams(value=value)
        )

    def add_environment(
        self,
        environment_id: str,
        exec_server_url: str,
        *,
        auth_bearer_token: str | None = None,
        connect_timeout_ms: UInt64 | None = None,
        skills: EnvironmentSkillsParams | None = None,
        websocket_request_id: str | None = None,
    ) -> EnvironmentAddResponse:
        """Register a remote machine by the URL of its exec server, so that turns may run there.

        Sends `environment/add`.
        """
        return self.request(
            client_requests.ENVIRONMENT_ADD,
            EnvironmentAddParams(
                environment_id=environment_id,
                exec_server_url=exec_server_url,
                auth_bearer_token=auth_bearer_token,
                connect_timeout_ms=connect_timeout_ms,
                skills=skills,
                websocket_request_id=websocket_request_id,
            ),
        )

    def read_environment_info(self, environment_id: str) -> EnvironmentInfoResponse:
        """Read information about an environment.

        Sends `environment/info`.
        """
        return self.request(
            client_requests.ENVIRONMENT_INFO, EnvironmentInfoParams(environment_id=environment_id)
        )

    def read_environment_status(self, environment_id: str) -> EnvironmentStatusResponse:
        """Read whether an environment is connected, without connecting to it.

        Sends `environment/status`.
        """
        return self.request(
            client_requests.ENVIRONMENT_STATUS,
            EnvironmentStatusParams(environment_id=environment_id),
        )

    def log_in_to_mcp_server(
        self,
        name: str,
        *,
        client_registration: McpServerOauthClientRegistration | None = None,
        scopes: list[str] | None = None,
        thread_id: str | None = None,
        timeout_secs: Int64 | None = None,
    ) -> McpServerOauthLoginResponse:
        """Start a sign-in to an MCP server through the browser.

        Sends `mcpServer/oauth/login`.
        """
        return self.request(
            client_requests.MCP_SERVER_OAUTH_LOGIN,
            McpServerOauthLoginParams(
                name=name,
                client_registration=client_registration,
                scopes=scopes,
                thread_id=thread_id,
                timeout_secs=timeout_secs,
            ),
        )

    def reload_mcp_servers(self) -> McpServerRefreshResponse:
        """Send the request and return its result.

        Sends `config/mcpServer/reload`.
        """
        return self.request(client_requests.CONFIG_MCP_SERVER_RELOAD, NoParams())

    def list_mcp_servers(
        self,
        *,
        cursor: str | None = None,
        detail: McpServerStatusDetail | None = None,
        limit: UInt32 | None = None,
        server_name: str | None = None,
        thread_id: str | None = None,
    ) -> ListMcpServerStatusResponse:
        """Page through the configured MCP servers and their tools and resources.

        Sends `mcpServerStatus/list`.
        """
        return self.request(
            client_requests.MCP_SERVER_STATUS_LIST,
            ListMcpServerStatusParams(
                cursor=cursor,
                detail=detail,
                limit=limit,
                server_name=server_name,
                thread_id=thread_id,
            ),
        )

    def read_mcp_resource(
        self,
        server: str,
        uri: str,
        *,
        connector_id: str | None = None,
        meta: dict[str, JsonValue] | None = None,
        origin_call_id: str | None = None,
        target: McpResourceReadTarget | None = None,
        thread_id: str | None = None,
    ) -> McpResourceReadResponse:
        """Read a document from an MCP server.

        Sends `mcpServer/resource/read`.
        """
        return self.request(
            client_requests.MCP_SERVER_RESOURCE_READ,
            McpResourceReadParams(
                server=server,
                uri=uri,
                connector_id=connector_id,
                meta=meta,
                origin_call_id=origin_call_id,
                target=target,
                thread_id=thread_id,
            ),
        )

    def start_mcp_event_stream(
        self,
        thread_id: str,
        arguments: JsonValue,
        name: str,
        server: str,
        subscription_id: str,
        *,
        meta: JsonValue = None,
    ) -> McpServerEventStreamStartResponse:
        """Open a stream of events from an MCP server, under an id that the client chooses.

        Sends `mcpServer/event/stream/start`.
        """
        return self.request(
            client_requests.MCP_SERVER_EVENT_STREAM_START,
            McpServerEventStreamStartParams(
                thread_id=thread_id,
                arguments=arguments,
                name=name,
                server=server,
                subscription_id=subscription_id,
                meta=meta,
            ),
        )

    def stop_mcp_event_stream(self, subscription_id: str) -> McpServerEventStreamStopResponse:
        """Close a stream of events.

        Sends `mcpServer/event/stream/stop`.
        """
        return self.request(
            client_requests.MCP_SERVER_EVENT_STREAM_STOP,
            McpServerEventStreamStopParams(subscription_id=subscription_id),
        )

    def call_mcp_tool(
        self,
        thread_id: str,
        server: str,
        tool: str,
        *,
        meta: JsonValue = None,
        arguments: JsonValue = None,
    ) -> McpServerToolCallResponse:
        """Call a tool of an MCP server for the client, without the model.

        Sends `mcpServer/tool/call`.
        """
        return self.request(
            client_requests.MCP_SERVER_TOOL_CALL,
            McpServerToolCallParams(
                thread_id=thread_id, server=server, tool=tool, meta=meta, arguments=arguments
            ),
        )

    def start_windows_sandbox_setup(
        self, mode: WindowsSandboxSetupMode, *, cwd: Path | AbsolutePathBuf | None = None
    ) -> WindowsSandboxSetupStartResponse:
        """Prepare the Windows sandbox, with or without administrator rights.

        Sends `windowsSandbox/setupStart`.
        """
        return self.request(
            client_requests.WINDOWS_SANDBOX_SETUP_START,
            WindowsSandboxSetupStartParams(mode=mode, cwd=None if cwd is None else str(cwd)),
        )

    def read_windows_sandbox_readiness(self) -> WindowsSandboxReadinessResponse:
        """Send the request and return its result.

        Sends `windowsSandbox/readiness`.
        """
        return self.request(client_requests.WINDOWS_SANDBOX_READINESS, NoParams())

    def start_login(self, params: LoginAccountParams) -> LoginAccountResponse:
        """Send the request and return its result.

        Sends `account/login/start`.
        """
        return self.request(client_requests.ACCOUNT_LOGIN_START, params)

    def discover_bedrock(self) -> BedrockDiscoverResponse:
        """Look for AWS credentials that could reach Bedrock.

        Sends `account/bedrock/discover`.
        """
        return self.request(client_requests.ACCOUNT_BEDROCK_DISCOVER, BedrockDiscoverParams())

    def set_up_bedrock(self, params: BedrockSetupParams) -> BedrockSetupResponse:
        """Send the request and return its result.

        Sends `account/bedrock/setup`.
        """
        return self.request(client_requests.ACCOUNT_BEDROCK_SETUP, params)

    def set_up_gcp(
        self, project_id: str, *, credential_file: str | None = None, location: str | None = None
    ) -> GcpSetupResponse:
        """Access models through Google Cloud Vertex AI.

        Sends `account/gcp/setup`.
        """
        return self.request(
            client_requests.ACCOUNT_GCP_SETUP,
            GcpSetupParams(
                project_id=project_id, credential_file=credential_file, location=location
            ),
        )

    def check_bedrock_gov_cloud(self) -> BedrockCheckGovCloudRequirementsResponse:
        """Read whether the current Bedrock setup needs a GovCloud warning.

        Sends `account/bedrock/checkGovCloudRequirements`.
        """
        return self.request(
            client_requests.ACCOUNT_BEDROCK_CHECK_GOV_CLOUD_REQUIREMENTS,
            BedrockCheckGovCloudRequirementsParams(),
        )

    def cancel_login(self, login_id: str) -> CancelLoginAccountResponse:
        """Cancel a sign-in that waits for the user.

        Sends `account/login/cancel`.
        """
        return self.request(
            client_requests.ACCOUNT_LOGIN_CANCEL, CancelLoginAccountParams(login_id=login_id)
        )

    def list_account_sessions(
        self, *, refresh_workspace_metadata: bool = False
    ) -> AccountSessionsResponse:
        """List the sign-ins, with fresh names of their workspaces if requested.

        Sends `accountSession/list`.
        """
        return self.request(
            client_requests.ACCOUNT_SESSION_LIST,
            AccountSessionsListParams(refresh_workspace_metadata=refresh_workspace_metadata),
        )

    def switch_account_session(
        self, account_id: str, session_id: str, *, allow_browser_login: bool = False
    ) -> AccountSessionsSwitchResponse:
        """Use another sign-in, or another workspace of one.

        Sends `accountSession/switch`.
        """
        return self.request(
            client_requests.ACCOUNT_SESSION_SWITCH,
            AccountSessionsSwitchParams(
                account_id=account_id,
                session_id=session_id,
                allow_browser_login=allow_browser_login,
            ),
        )

    def logout(self) -> LogoutAccountResponse:
        """Send the request and return its result.

        Sends `account/logout`.
        """
        return self.request(client_requests.ACCOUNT_LOGOUT, NoParams())

    def read_account_security_setup(self) -> GetAccountSecuritySetupResponse:
        """Send the request and return its result.

        Sends `account/securitySetup/read`.
        """
        return self.request(client_requests.ACCOUNT_SECURITY_SETUP_READ, NoParams())

    def read_rate_limits(
        self, *, exclude_reset_credit_details: bool = False, supports_luna_reserve: bool = False
    ) -> GetAccountRateLimitsResponse:
        """Read the state of the account's limits.

        Sends `account/rateLimits/read`.
        """
        return self.request(
            client_requests.ACCOUNT_RATE_LIMITS_READ,
            GetAccountRateLimitsParams(
                exclude_reset_credit_details=exclude_reset_credit_details,
                supports_luna_reserve=supports_luna_reserve,
            ),
        )

    def consume_rate_limit_reset_credit(
        self, idempotency_key: str, *, credit_id: str | None = None
    ) -> ConsumeAccountRateLimitResetCreditResponse:
        """Spend a credit to reset the limits; repeat the key when retrying.

        Sends `account/rateLimitResetCredit/consume`.
        """
        return self.request(
            client_requests.ACCOUNT_RATE_LIMIT_RESET_CREDIT_CONSUME,
            ConsumeAccountRateLimitResetCreditParams(
                idempotency_key=idempotency_key, credit_id=credit_id
            ),
        )

    def read_account_usage(self, *, thread_id: str | None = None) -> GetAccountTokenUsageResponse:
        """Read the account's token totals, or the estimate for one thread.

        Sends `account/usage/read`.
        """
        return self.request(
            client_requests.ACCOUNT_USAGE_READ, GetAccountTokenUsageParams(thread_id=thread_id)
        )

    def read_workspace_messages(self) -> GetWorkspaceMessagesResponse:
        """Send the request and return its result.

        Sends `account/workspaceMessages/read`.
        """
        return self.request(client_requests.ACCOUNT_WORKSPACE_MESSAGES_READ, NoParams())

    def send_add_credits_nudge_email(
        self, credit_type: AddCreditsNudgeCreditType
    ) -> SendAddCreditsNudgeEmailResponse:
        """Email the workspace's owner to request more credits or a higher limit.

        Sends `account/sendAddCreditsNudgeEmail`.
        """
        return self.request(
            client_requests.ACCOUNT_SEND_ADD_CREDITS_NUDGE_EMAIL,
            SendAddCreditsNudgeEmailParams(credit_type=credit_type),
        )

    def upload_feedback(
        self,
        classification: str,
        *,
        extra_log_files: list[str] | None = None,
        include_logs: bool = False,
        reason: str | None = None,
        tags: dict[str, str] | None = None,
        thread_id: str | None = None,
    ) -> FeedbackUploadResponse:
        """Send feedback, optionally with the server's logs and files of the client.

        Sends `feedback/upload`.
        """
        return self.request(
            client_requests.FEEDBACK_UPLOAD,
            FeedbackUploadParams(
                classification=classification,
                extra_log_files=extra_log_files,
                include_logs=include_logs,
                reason=reason,
                tags=tags,
                thread_id=thread_id,
            ),
        )

    def save_feedback(
        self,
        classification: str,
        save_path: LegacyAppPathString,
        *,
        extra_log_files: list[str] | None = None,
        include_logs: bool = False,
        reason: str | None = None,
        tags: dict[str, str] | None = None,
        thread_id: str | None = None,
    ) -> FeedbackSaveResponse:
        """Save feedback as a ZIP file on the server's machine, at a path that does not exist yet.

        Sends `feedback/save`.
        """
        return self.request(
            client_requests.FEEDBACK_SAVE,
            FeedbackSaveParams(
                classification=classification,
                save_path=save_path,
                extra_log_files=extra_log_files,
                include_logs=include_logs,
                reason=reason,
                tags=tags,
                thread_id=thread_id,
            ),
        )

    def write_to_command(
        self, process_id: str, *, close_stdin: bool = False, delta_base64: str | None = None
    ) -> CommandExecWriteResponse:
        """Write input to a running command, close its input, or both in that order.

        Sends `command/exec/write`.
        """
        return self.request(
            client_requests.COMMAND_EXEC_WRITE,
            CommandExecWriteParams(
                process_id=process_id, close_stdin=close_stdin, delta_base64=delta_base64
            ),
        )

    def terminate_command(self, process_id: str) -> CommandExecTerminateResponse:
        """Kill a running command; its own response follows.

        Sends `command/exec/terminate`.
        """
        return self.request(
            client_requests.COMMAND_EXEC_TERMINATE,
            CommandExecTerminateParams(process_id=process_id),
        )

    def resize_command(
        self, process_id: str, size: CommandExecTerminalSize
    ) -> CommandExecResizeResponse:
        """Report the new window size to a command with a terminal.

        Sends `command/exec/resize`.
        """
        return self.request(
            client_requests.COMMAND_EXEC_RESIZE,
            CommandExecResizeParams(process_id=process_id, size=size),
        )

    def spawn_process(
        self,
        command: list[str],
        cwd: Path | AbsolutePathBuf,
        process_handle: str,
        *,
        env: dict[str, str | None] | None = None,
        output_bytes_cap: UInt64 | UnsetType | None = UNSET,
        size: ProcessTerminalSize | None = None,
        stream_stdin: bool = False,
        stream_stdout_stderr: bool = False,
        timeout_ms: Int64 | UnsetType | None = UNSET,
        tty: bool = False,
    ) -> ProcessSpawnResponse:
        """Run a program outside the sandbox, under a handle unique per connection.

        Sends `process/spawn`.
        """
        return self.request(
            client_requests.PROCESS_SPAWN,
            ProcessSpawnParams(
                command=command,
                cwd=str(cwd),
                process_handle=process_handle,
                env=env,
                output_bytes_cap=output_bytes_cap,
                size=size,
                stream_stdin=stream_stdin,
                stream_stdout_stderr=stream_stdout_stderr,
                timeout_ms=timeout_ms,
                tty=tty,
            ),
        )

    def write_to_process(
        self, process_handle: str, *, close_stdin: bool = False, delta_base64: str | None = None
    ) -> ProcessWriteStdinResponse:
        """Send bytes to a process, close its input, or both in that order.

        Sends `process/writeStdin`.
        """
        return self.request(
            client_requests.PROCESS_WRITE_STDIN,
            ProcessWriteStdinParams(
                process_handle=process_handle, close_stdin=close_stdin, delta_base64=delta_base64
            ),
        )

    def kill_process(self, process_handle: str) -> ProcessKillResponse:
        """Kill a process.

        Sends `process/kill`.
        """
        return self.request(
            client_requests.PROCESS_KILL, ProcessKillParams(process_handle=process_handle)
        )

    def resize_process(
        self, process_handle: str, size: ProcessTerminalSize
    ) -> ProcessResizePtyResponse:
        """Report the new size of its terminal to a process.

        Sends `process/resizePty`.
        """
        return self.request(
            client_requests.PROCESS_RESIZE_PTY,
            ProcessResizePtyParams(process_handle=process_handle, size=size),
        )

    def read_config(
        self, *, cwd: str | None = None, include_layers: bool = False
    ) -> ConfigReadResponse:
        """Read the settings in force for a folder.

        Sends `config/read`.
        """
        return self.request(
            client_requests.CONFIG_READ, ConfigReadParams(cwd=cwd, include_layers=include_layers)
        )

    def detect_external_agent_config(
        self,
        *,
        cwds: list[str] | None = None,
        include_home: bool = False,
        max_session_age_days: UInt32 | None = None,
        max_sessions: UInt32 | None = None,
        migration_source: str | None = None,
        source: str | None = None,
    ) -> ExternalAgentConfigDetectResponse:
        """Look for files of other agents that could be imported.

        Sends `externalAgentConfig/detect`.
        """
        return self.request(
            client_requests.EXTERNAL_AGENT_CONFIG_DETECT,
            ExternalAgentConfigDetectParams(
                cwds=cwds,
                include_home=include_home,
                max_session_age_days=max_session_age_days,
                max_sessions=max_sessions,
                migration_source=migration_source,
                source=source,
            ),
        )

    def import_external_agent_config(
        self,
        migration_items: list[ExternalAgentConfigMigrationItem],
        *,
        migration_source: str | None = None,
        provider_id: str | None = None,
        source: str | None = None,
    ) -> ExternalAgentConfigImportResponse:
        """Import the items that the user selected among those detected.

        Sends `externalAgentConfig/import`.
        """
        return self.request(
            client_requests.EXTERNAL_AGENT_CONFIG_IMPORT,
            ExternalAgentConfigImportParams(
                migration_items=migration_items,
                migration_source=migration_source,
                provider_id=provider_id,
                source=source,
            ),
        )

    def record_external_agent_import(
        self,
        item_type_results: list[ExternalAgentConfigImportHistoryRecordTypeResultParams],
        provider_id: str,
    ) -> ExternalAgentConfigImportHistoryRecordResponse:
        """Record an import that the client performed itself.

        Sends `externalAgentConfig/import/recordHistory`.
        """
        return self.request(
            client_requests.EXTERNAL_AGENT_CONFIG_IMPORT_RECORD_HISTORY,
            ExternalAgentConfigImportHistoryRecordParams(
                item_type_results=item_type_results, provider_id=provider_id
            ),
        )

    def read_external_agent_imports(self) -> ExternalAgentConfigImportHistoriesReadResponse:
        """Send the request and return its result.

        Sends `externalAgentConfig/import/readHistories`.
        """
        return self.request(client_requests.EXTERNAL_AGENT_CONFIG_IMPORT_READ_HISTORIES, NoParams())

    def write_config_value(
        self,
        key_path: str,
        merge_strategy: MergeStrategy,
        value: JsonValue,
        *,
        expected_version: str | None = None,
        file_path: str | None = None,
    ) -> ConfigWriteResponse:
        """Change one key of a configuration file.

        Sends `config/value/write`.
        """
        return self.request(
            client_requests.CONFIG_VALUE_WRITE,
            ConfigValueWriteParams(
                key_path=key_path,
                merge_strategy=merge_strategy,
                value=value,
                expected_version=expected_version,
                file_path=file_path,
            ),
        )

    def write_config_values(
        self,
        edits: list[ConfigEdit],
        *,
        expected_version: str | None = None,
        file_path: str | None = None,
        reload_user_config: bool = False,
    ) -> ConfigWriteResponse:
        """Make several changes to a configuration file atomically.

        Sends `config/batchWrite`.
        """
        return self.request(
            client_requests.CONFIG_BATCH_WRITE,
            ConfigBatchWriteParams(
                edits=edits,
                expected_version=expected_version,
                file_path=file_path,
                reload_user_config=reload_user_config,
            ),
        )

    def read_config_requirements(self) -> ConfigRequirementsReadResponse:
        """Send the request and return its result.

        Sends `configRequirements/read`.
        """
        return self.request(client_requests.CONFIG_REQUIREMENTS_READ, NoParams())

    def read_account(self, *, refresh_token: bool = False) -> GetAccountResponse:
        """Read the signed-in account.

        Sends `account/read`.
        """
        return self.request(
            client_requests.ACCOUNT_READ, GetAccountParams(refresh_token=refresh_token)
        )

    def search_files(
        self, query: str, roots: list[str], *, cancellation_token: str | None = None
    ) -> FuzzyFileSearchResponse:
        """Search once; a later search with the same token cancels the previous one.

        Sends `fuzzyFileSearch`.
        """
        return self.request(
            client_requests.FUZZY_FILE_SEARCH,
            FuzzyFileSearchParams(query=query, roots=roots, cancellation_token=cancellation_token),
        )

    def start_file_search(
        self, roots: list[str], session_id: str
    ) -> FuzzyFileSearchSessionStartResponse:
        """Open a search over some roots under an id that the client chooses.

        Sends `fuzzyFileSearch/sessionStart`.
        """
        return self.request(
            client_requests.FUZZY_FILE_SEARCH_SESSION_START,
            FuzzyFileSearchSessionStartParams(roots=roots, session_id=session_id),
        )

    def update_file_search(
        self, query: str, session_id: str
    ) -> FuzzyFileSearchSessionUpdateResponse:
        """Change the query of an open session.

        Sends `fuzzyFileSearch/sessionUpdate`.
        """
        return self.request(
            client_requests.FUZZY_FILE_SEARCH_SESSION_UPDATE,
            FuzzyFileSearchSessionUpdateParams(query=query, session_id=session_id),
        )

    def stop_file_search(self, session_id: str) -> FuzzyFileSearchSessionStopResponse:
        """Close a search and discard its index.

        Sends `fuzzyFileSearch/sessionStop`.
        """
        return self.request(
            client_requests.FUZZY_FILE_SEARCH_SESSION_STOP,
            FuzzyFileSearchSessionStopParams(session_id=session_id),
        )

    def get_conversation_summary(
        self, *, rollout_path: str | None = None, conversation_id: ThreadId | None = None
    ) -> GetConversationSummaryResponse:
        """Identify a stored thread by its rollout file or by its id.

        Sends `getConversationSummary`.
        """
        return self.request(
            legacy.GET_CONVERSATION_SUMMARY,
            GetConversationSummaryParams(
                rollout_path=rollout_path, conversation_id=conversation_id
            ),
        )

    def diff_to_remote(self, cwd: str) -> GitDiffToRemoteResponse:
        """Compare a folder's working tree with its closest commit on a remote.

        Sends `gitDiffToRemote`.
        """
        return self.request(legacy.GIT_DIFF_TO_REMOTE, GitDiffToRemoteParams(cwd=cwd))

    def get_auth_status(
        self, *, include_token: bool | None = None, refresh_token: bool | None = None
    ) -> GetAuthStatusResponse:
        """Read how the server is signed in, with the token itself on request.

        Sends `getAuthStatus`.
        """
        return self.request(
            legacy.GET_AUTH_STATUS,
            GetAuthStatusParams(include_token=include_token, refresh_token=refresh_token),
        )
