"""Every notification that the server may send: one line each, and the index by method name."""

from __future__ import annotations

from typing import Final

from treadle.protocol import (
    account,
    account_usage,
    app,
    approval,
    attachment,
    command,
    delta,
    environment,
    error,
    external_agent,
    fs,
    fuzzy_file_search,
    goal,
    history,
    hook,
    item,
    mcp,
    model,
    process,
    project,
    queue,
    read_state,
    realtime,
    remote_control,
    response_item,
    section,
    settings,
    skill,
    status,
    thread,
    thread_manage,
    turn,
    usage,
    windows_sandbox,
)
from treadle.protocol.method import Notification, index

# fmt: off
# The table is easiest to read with one method per line, however long.
ERROR = Notification("error", error.ErrorNotification)
THREAD_STARTED = Notification("thread/started", thread.ThreadStartedNotification)
THREAD_STATUS_CHANGED = Notification("thread/status/changed", status.ThreadStatusChangedNotification)
THREAD_READ_STATE_CHANGED = Notification("thread/readState/changed", read_state.ThreadReadStateChangedNotification)
THREAD_ARCHIVED = Notification("thread/archived", thread_manage.ThreadArchivedNotification)
THREAD_DELETED = Notification("thread/deleted", thread_manage.ThreadDeletedNotification)
THREAD_UNARCHIVED = Notification("thread/unarchived", thread_manage.ThreadUnarchivedNotification)
THREAD_CLOSED = Notification("thread/closed", thread_manage.ThreadClosedNotification)
THREAD_REVERTED = Notification("thread/reverted", thread_manage.ThreadRevertedNotification)
SKILLS_CHANGED = Notification("skills/changed", skill.SkillsChangedNotification)
THREAD_NAME_UPDATED = Notification("thread/name/updated", thread_manage.ThreadNameUpdatedNotification)
THREAD_ATTACHMENT_UPDATED = Notification("thread/attachment/updated", attachment.ThreadAttachmentUpdatedNotification)
THREAD_GOAL_UPDATED = Notification("thread/goal/updated", goal.ThreadGoalUpdatedNotification)
THREAD_PREDICTION_UPDATED = Notification("thread/prediction/updated", history.ThreadPredictionUpdatedNotification)
THREAD_GOAL_CLEARED = Notification("thread/goal/cleared", goal.ThreadGoalClearedNotification)
THREAD_QUEUE_CHANGED = Notification("thread/queue/changed", queue.ThreadQueueChangedNotification)
PROJECT_CHANGED = Notification("project/changed", project.ProjectChangedNotification)
THREAD_PROJECT_UPDATED = Notification("thread/project/updated", project.ThreadProjectUpdatedNotification)
THREAD_SECTION_CHANGED = Notification("thread/section/changed", section.ThreadSectionChangedNotification)
THREAD_ENVIRONMENT_CONNECTED = Notification("thread/environment/connected", environment.EnvironmentConnectionNotification)
THREAD_ENVIRONMENT_DISCONNECTED = Notification("thread/environment/disconnected", environment.EnvironmentConnectionNotification)
THREAD_SETTINGS_UPDATED = Notification("thread/settings/updated", settings.ThreadSettingsUpdatedNotification)
THREAD_TOKEN_USAGE_UPDATED = Notification("thread/tokenUsage/updated", usage.ThreadTokenUsageUpdatedNotification)
TURN_STARTED = Notification("turn/started", turn.TurnStartedNotification)
HOOK_STARTED = Notification("hook/started", hook.HookStartedNotification)
TURN_COMPLETED = Notification("turn/completed", turn.TurnCompletedNotification)
HOOK_COMPLETED = Notification("hook/completed", hook.HookCompletedNotification)
TURN_DIFF_UPDATED = Notification("turn/diff/updated", turn.TurnDiffUpdatedNotification)
TURN_PLAN_UPDATED = Notification("turn/plan/updated", turn.TurnPlanUpdatedNotification)
ITEM_STARTED = Notification("item/started", item.ItemStartedNotification)
ITEM_AUTO_APPROVAL_REVIEW_STARTED = Notification("item/autoApprovalReview/started", approval.ItemGuardianApprovalReviewStartedNotification)
ITEM_AUTO_APPROVAL_REVIEW_COMPLETED = Notification("item/autoApprovalReview/completed", approval.ItemGuardianApprovalReviewCompletedNotification)
AUTO_APPROVAL_REVIEW_STRICT_REVIEW_REQUIRED = Notification("autoApprovalReview/strictReviewRequired", approval.StrictReviewRequiredNotification)
ITEM_COMPLETED = Notification("item/completed", item.ItemCompletedNotification)
ITEM_AGENT_MESSAGE_DELTA = Notification("item/agentMessage/delta", delta.AgentMessageDeltaNotification)
ITEM_PLAN_DELTA = Notification("item/plan/delta", delta.PlanDeltaNotification)
COMMAND_EXEC_OUTPUT_DELTA = Notification("command/exec/outputDelta", command.CommandExecOutputDeltaNotification)
PROCESS_OUTPUT_DELTA = Notification("process/outputDelta", process.ProcessOutputDeltaNotification)
PROCESS_EXITED = Notification("process/exited", process.ProcessExitedNotification)
ITEM_COMMAND_EXECUTION_OUTPUT_DELTA = Notification("item/commandExecution/outputDelta", delta.CommandExecutionOutputDeltaNotification)
ITEM_COMMAND_EXECUTION_TERMINAL_INTERACTION = Notification("item/commandExecution/terminalInteraction", delta.TerminalInteractionNotification)
ITEM_FILE_CHANGE_OUTPUT_DELTA = Notification("item/fileChange/outputDelta", delta.FileChangeOutputDeltaNotification)
ITEM_FILE_CHANGE_PATCH_UPDATED = Notification("item/fileChange/patchUpdated", delta.FileChangePatchUpdatedNotification)
SERVER_REQUEST_RESOLVED = Notification("serverRequest/resolved", thread.ServerRequestResolvedNotification)
ITEM_MCP_TOOL_CALL_PROGRESS = Notification("item/mcpToolCall/progress", mcp.McpToolCallProgressNotification)
MCP_SERVER_OAUTH_LOGIN_COMPLETED = Notification("mcpServer/oauthLogin/completed", mcp.McpServerOauthLoginCompletedNotification)
MCP_SERVER_STARTUP_STATUS_UPDATED = Notification("mcpServer/startupStatus/updated", mcp.McpServerStatusUpdatedNotification)
MCP_SERVER_EVENT_STREAM_NOTIFICATION = Notification("mcpServer/event/stream/notification", mcp.McpServerEventStreamNotification)
ACCOUNT_UPDATED = Notification("account/updated", account.AccountUpdatedNotification)
ACCOUNT_GATEWAY_OAUTH_CHANGED = Notification("account/gatewayOAuth/changed", account.GatewayOAuthChangedNotification)
ACCOUNT_RATE_LIMITS_UPDATED = Notification("account/rateLimits/updated", account_usage.AccountRateLimitsUpdatedNotification)
APP_LIST_UPDATED = Notification("app/list/updated", app.AppListUpdatedNotification)
REMOTE_CONTROL_STATUS_CHANGED = Notification("remoteControl/status/changed", remote_control.RemoteControlStatusChangedNotification)
EXTERNAL_AGENT_CONFIG_IMPORT_PROGRESS = Notification("externalAgentConfig/import/progress", external_agent.ExternalAgentConfigImportProgressNotification)
EXTERNAL_AGENT_CONFIG_IMPORT_COMPLETED = Notification("externalAgentConfig/import/completed", external_agent.ExternalAgentConfigImportCompletedNotification)
FS_CHANGED = Notification("fs/changed", fs.FsChangedNotification)
ITEM_REASONING_SUMMARY_TEXT_DELTA = Notification("item/reasoning/summaryTextDelta", delta.ReasoningSummaryTextDeltaNotification)
ITEM_REASONING_SUMMARY_PART_ADDED = Notification("item/reasoning/summaryPartAdded", delta.ReasoningSummaryPartAddedNotification)
ITEM_REASONING_TEXT_DELTA = Notification("item/reasoning/textDelta", delta.ReasoningTextDeltaNotification)
THREAD_COMPACTED = Notification("thread/compacted", thread.ContextCompactedNotification)
MODEL_REROUTED = Notification("model/rerouted", model.ModelReroutedNotification)
MODEL_VERIFICATION = Notification("model/verification", model.ModelVerificationNotification)
MODEL_PROVIDER_AUTH_RECOVERY_STARTED = Notification("modelProvider/authRecoveryStarted", model.AuthRecoveryNotification)
MODEL_PROVIDER_AUTH_RECOVERY_COMPLETED = Notification("modelProvider/authRecoveryCompleted", model.AuthRecoveryNotification)
TURN_MODERATION_METADATA = Notification("turn/moderationMetadata", turn.TurnModerationMetadataNotification)
MODEL_SAFETY_BUFFERING_UPDATED = Notification("model/safetyBuffering/updated", model.ModelSafetyBufferingUpdatedNotification)
WARNING = Notification("warning", error.WarningNotification)
GUARDIAN_WARNING = Notification("guardianWarning", error.GuardianWarningNotification)
DEPRECATION_NOTICE = Notification("deprecationNotice", error.DeprecationNoticeNotification)
CONFIG_WARNING = Notification("configWarning", error.ConfigWarningNotification)
FUZZY_FILE_SEARCH_SESSION_UPDATED = Notification("fuzzyFileSearch/sessionUpdated", fuzzy_file_search.FuzzyFileSearchSessionUpdatedNotification)
FUZZY_FILE_SEARCH_SESSION_COMPLETED = Notification("fuzzyFileSearch/sessionCompleted", fuzzy_file_search.FuzzyFileSearchSessionCompletedNotification)
THREAD_REALTIME_STARTED = Notification("thread/realtime/started", realtime.ThreadRealtimeStartedNotification)
THREAD_REALTIME_ITEM_ADDED = Notification("thread/realtime/itemAdded", realtime.ThreadRealtimeItemAddedNotification)
THREAD_REALTIME_ITEM_STARTED = Notification("thread/realtime/item/started", realtime.ThreadRealtimeItemStartedNotification)
THREAD_REALTIME_ITEM_TRANSCRIPT_DELTA = Notification("thread/realtime/item/transcript/delta", realtime.ThreadRealtimeItemTranscriptDeltaNotification)
THREAD_REALTIME_ITEM_COMPLETED = Notification("thread/realtime/item/completed", realtime.ThreadRealtimeItemCompletedNotification)
THREAD_REALTIME_TRANSCRIPT_DELTA = Notification("thread/realtime/transcript/delta", realtime.ThreadRealtimeTranscriptDeltaNotification)
THREAD_REALTIME_TRANSCRIPT_DONE = Notification("thread/realtime/transcript/done", realtime.ThreadRealtimeTranscriptDoneNotification)
THREAD_REALTIME_OUTPUT_AUDIO_DELTA = Notification("thread/realtime/outputAudio/delta", realtime.ThreadRealtimeOutputAudioDeltaNotification)
THREAD_REALTIME_SDP = Notification("thread/realtime/sdp", realtime.ThreadRealtimeSdpNotification)
THREAD_REALTIME_ERROR = Notification("thread/realtime/error", realtime.ThreadRealtimeErrorNotification)
THREAD_REALTIME_CLOSED = Notification("thread/realtime/closed", realtime.ThreadRealtimeClosedNotification)
WINDOWS_WORLD_WRITABLE_WARNING = Notification("windows/worldWritableWarning", error.WindowsWorldWritableWarningNotification)
WINDOWS_SANDBOX_SETUP_COMPLETED = Notification("windowsSandbox/setupCompleted", windows_sandbox.WindowsSandboxSetupCompletedNotification)
ACCOUNT_LOGIN_COMPLETED = Notification("account/login/completed", account.AccountLoginCompletedNotification)
THREAD_REALTIME_TRANSCRIPT_UPDATED = Notification("thread/realtime/transcriptUpdated", realtime.ThreadRealtimeTranscriptUpdatedNotification)
RAW_RESPONSE_ITEM_COMPLETED = Notification("rawResponseItem/completed", response_item.RawResponseItemCompletedNotification)
RAW_RESPONSE_COMPLETED = Notification("rawResponse/completed", response_item.RawResponseCompletedNotification)
# fmt: on

SERVER_NOTIFICATIONS: Final = index(globals(), Notification)
