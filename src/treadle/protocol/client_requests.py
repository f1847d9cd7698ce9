"""Every request that a client may send: one line each, and the index by method name."""

from __future__ import annotations

from typing import Final

from treadle.protocol import (
    account,
    account_usage,
    app,
    approval,
    attachment,
    collaboration,
    command,
    config,
    diagnostics,
    elicitation,
    environment,
    external_agent,
    feature,
    feedback,
    fs,
    fuzzy_file_search,
    goal,
    history,
    hook,
    initialize,
    marketplace,
    mcp,
    memory,
    model,
    permission,
    plugin,
    plugin_share,
    process,
    project,
    queue,
    read_state,
    realtime,
    remote_control,
    requirements,
    review,
    section,
    settings,
    skill,
    thread,
    thread_manage,
    turn,
    user_verification,
    windows_sandbox,
)
from treadle.protocol.base import NoParams
from treadle.protocol.method import (
    Request,
    by_account,
    by_catalogue,
    by_config,
    by_plugins,
    by_process,
    by_session,
    by_thread,
    by_watch,
    index,
)

# fmt: off
# The table is easiest to read with one method per line, however long.
INITIALIZE = Request("initialize", initialize.InitializeParams, initialize.InitializeResponse)
SERVER_DIAGNOSTICS = Request("server/diagnostics", diagnostics.ServerDiagnosticsParams, diagnostics.ServerDiagnosticsResponse, experimental=True)
USER_VERIFICATION_STATUS = Request("userVerification/status", user_verification.UserVerificationStatusParams, user_verification.UserVerificationStatusResponse, experimental=True)
USER_VERIFICATION_ENROLL = Request("userVerification/enroll", user_verification.UserVerificationEnrollParams, user_verification.UserVerificationEnrollResponse, experimental=True)
USER_VERIFICATION_DELETE = Request("userVerification/delete", user_verification.UserVerificationDeleteParams, user_verification.UserVerificationDeleteResponse, experimental=True)
USER_VERIFICATION_VERIFY = Request("userVerification/verify", user_verification.UserVerificationVerifyParams, user_verification.UserVerificationVerifyResponse, experimental=True)
USER_VERIFICATION_CANCEL = Request("userVerification/cancel", user_verification.UserVerificationCancelParams, user_verification.UserVerificationCancelResponse, experimental=True)
THREAD_START = Request("thread/start", thread.ThreadStartParams, thread.ThreadStartResponse)
THREAD_RESUME = Request("thread/resume", thread.ThreadResumeParams, thread.ThreadResumeResponse, scope=by_thread)
THREAD_FORK = Request("thread/fork", thread.ThreadForkParams, thread.ThreadForkResponse, scope=by_thread)
THREAD_ARCHIVE = Request("thread/archive", thread_manage.ThreadArchiveParams, thread_manage.ThreadArchiveResponse, scope=by_thread)
THREAD_DELETE = Request("thread/delete", thread_manage.ThreadDeleteParams, thread_manage.ThreadDeleteResponse, scope=by_thread)
THREAD_UNSUBSCRIBE = Request("thread/unsubscribe", thread_manage.ThreadUnsubscribeParams, thread_manage.ThreadUnsubscribeResponse, scope=by_thread)
THREAD_INCREMENT_ELICITATION = Request("thread/increment_elicitation", elicitation.ThreadIncrementElicitationParams, elicitation.ThreadIncrementElicitationResponse, experimental=True, scope=by_thread)
THREAD_DECREMENT_ELICITATION = Request("thread/decrement_elicitation", elicitation.ThreadDecrementElicitationParams, elicitation.ThreadDecrementElicitationResponse, experimental=True, scope=by_thread)
THREAD_NAME_SET = Request("thread/name/set", thread.ThreadSetNameParams, thread.ThreadSetNameResponse, scope=by_thread)
THREAD_PREDICTION_REQUEST = Request("thread/prediction/request", history.ThreadPredictionRequestParams, history.ThreadPredictionRequestResponse, experimental=True, scope=by_thread)
THREAD_GOAL_SET = Request("thread/goal/set", goal.ThreadGoalSetParams, goal.ThreadGoalSetResponse, scope=by_thread)
THREAD_GOAL_GET = Request("thread/goal/get", goal.ThreadGoalGetParams, goal.ThreadGoalGetResponse, scope=by_thread)
THREAD_GOAL_CLEAR = Request("thread/goal/clear", goal.ThreadGoalClearParams, goal.ThreadGoalClearResponse, scope=by_thread)
THREAD_QUEUE_ADD = Request("thread/queue/add", queue.ThreadQueueAddParams, queue.ThreadQueueAddResponse, experimental=True, scope=by_thread)
THREAD_QUEUE_LIST = Request("thread/queue/list", queue.ThreadQueueListParams, queue.ThreadQueueListResponse, experimental=True, scope=by_thread)
THREAD_QUEUE_UPDATE = Request("thread/queue/update", queue.ThreadQueueUpdateParams, queue.ThreadQueueUpdateResponse, experimental=True, scope=by_thread)
THREAD_QUEUE_DELETE = Request("thread/queue/delete", queue.ThreadQueueDeleteParams, queue.ThreadQueueDeleteResponse, experimental=True, scope=by_thread)
THREAD_QUEUE_REORDER = Request("thread/queue/reorder", queue.ThreadQueueReorderParams, queue.ThreadQueueReorderResponse, experimental=True, scope=by_thread)
THREAD_QUEUE_START = Request("thread/queue/start", queue.ThreadQueueStartParams, queue.ThreadQueueStartResponse, experimental=True, scope=by_thread)
THREAD_METADATA_UPDATE = Request("thread/metadata/update", thread_manage.ThreadMetadataUpdateParams, thread_manage.ThreadMetadataUpdateResponse, scope=by_thread)
THREAD_ATTACHMENT_ADD = Request("thread/attachment/add", attachment.ThreadAttachmentAddParams, attachment.ThreadAttachmentAddResponse, scope=by_thread)
THREAD_ATTACHMENT_LIST = Request("thread/attachment/list", attachment.ThreadAttachmentListParams, attachment.ThreadAttachmentListResponse, scope=by_thread)
THREAD_ATTACHMENT_OWNER_LIST = Request("thread/attachmentOwner/list", attachment.ThreadAttachmentOwnerListParams, attachment.ThreadAttachmentOwnerListResponse)
THREAD_ATTACHMENT_REMOVE = Request("thread/attachment/remove", attachment.ThreadAttachmentRemoveParams, attachment.ThreadAttachmentRemoveResponse, scope=by_thread)
THREAD_SECTION_MOVE = Request("thread/section/move", section.ThreadSectionMoveParams, section.ThreadSectionMoveResponse, scope=by_thread)
THREAD_SETTINGS_UPDATE = Request("thread/settings/update", settings.ThreadSettingsUpdateParams, settings.ThreadSettingsUpdateResponse, experimental=True, scope=by_thread)
THREAD_MEMORY_MODE_SET = Request("thread/memoryMode/set", memory.ThreadMemoryModeSetParams, memory.ThreadMemoryModeSetResponse, experimental=True, scope=by_thread)
MEMORY_STATUS = Request("memory/status", memory.MemoryStatusParams, memory.MemoryStatusResponse, experimental=True)
MEMORY_RESET = Request("memory/reset", NoParams, memory.MemoryResetResponse, experimental=True)
ROLLOUT_COMPRESS = Request("rollout/compress", NoParams, history.RolloutCompressResponse, experimental=True)
THREAD_UNARCHIVE = Request("thread/unarchive", thread_manage.ThreadUnarchiveParams, thread_manage.ThreadUnarchiveResponse, scope=by_thread)
THREAD_COMPACT_START = Request("thread/compact/start", thread_manage.ThreadCompactStartParams, thread_manage.ThreadCompactStartResponse, scope=by_thread)
THREAD_SHELL_COMMAND = Request("thread/shellCommand", command.ThreadShellCommandParams, command.ThreadShellCommandResponse, scope=by_thread)
THREAD_APPROVE_GUARDIAN_DENIED_ACTION = Request("thread/approveGuardianDeniedAction", approval.ThreadApproveGuardianDeniedActionParams, approval.ThreadApproveGuardianDeniedActionResponse, scope=by_thread)
THREAD_BACKGROUND_TERMINALS_CLEAN = Request("thread/backgroundTerminals/clean", command.ThreadBackgroundTerminalsCleanParams, command.ThreadBackgroundTerminalsCleanResponse, experimental=True, scope=by_thread)
THREAD_BACKGROUND_TERMINALS_LIST = Request("thread/backgroundTerminals/list", command.ThreadBackgroundTerminalsListParams, command.ThreadBackgroundTerminalsListResponse, experimental=True, scope=by_thread)
THREAD_BACKGROUND_TERMINALS_TERMINATE = Request("thread/backgroundTerminals/terminate", command.ThreadBackgroundTerminalsTerminateParams, command.ThreadBackgroundTerminalsTerminateResponse, experimental=True, scope=by_thread)
THREAD_ROLLBACK = Request("thread/rollback", thread_manage.ThreadRollbackParams, thread_manage.ThreadRollbackResponse, scope=by_thread)
THREAD_REVERT = Request("thread/revert", thread_manage.ThreadRevertParams, thread_manage.ThreadRevertResponse, scope=by_thread)
THREAD_LIST = Request("thread/list", thread_manage.ThreadListParams, thread_manage.ThreadListResponse)
PROJECT_LIST = Request("project/list", project.ProjectListParams, project.ProjectListResponse, experimental=True, scope=by_catalogue)
PROJECT_READ = Request("project/read", project.ProjectReadParams, project.ProjectReadResponse, experimental=True, scope=by_catalogue)
PROJECT_CREATE = Request("project/create", project.ProjectCreateParams, project.ProjectCreateResponse, experimental=True, scope=by_catalogue)
PROJECT_IMPORT = Request("project/import", project.ProjectImportParams, project.ProjectImportResponse, experimental=True, scope=by_catalogue)
PROJECT_UPDATE = Request("project/update", project.ProjectUpdateParams, project.ProjectUpdateResponse, experimental=True, scope=by_catalogue)
PROJECT_MOVE = Request("project/move", project.ProjectMoveParams, project.ProjectMoveResponse, experimental=True, scope=by_catalogue)
PROJECT_DELETE = Request("project/delete", project.ProjectDeleteParams, project.ProjectDeleteResponse, experimental=True, scope=by_catalogue)
THREAD_SECTION_LIST = Request("threadSection/list", section.ThreadSectionListParams, section.ThreadSectionListResponse, scope=by_catalogue)
THREAD_SECTION_CREATE = Request("threadSection/create", section.ThreadSectionCreateParams, section.ThreadSectionCreateResponse, scope=by_catalogue)
THREAD_SECTION_UPDATE = Request("threadSection/update", section.ThreadSectionUpdateParams, section.ThreadSectionUpdateResponse, scope=by_catalogue)
THREAD_SECTION_DELETE = Request("threadSection/delete", section.ThreadSectionDeleteParams, section.ThreadSectionDeleteResponse, scope=by_catalogue)
THREAD_SEARCH = Request("thread/search", history.ThreadSearchParams, history.ThreadSearchResponse, experimental=True)
THREAD_SEARCH_OCCURRENCES = Request("thread/searchOccurrences", history.ThreadSearchOccurrencesParams, history.ThreadSearchOccurrencesResponse, experimental=True, scope=by_thread)
THREAD_LOADED_LIST = Request("thread/loaded/list", thread_manage.ThreadLoadedListParams, thread_manage.ThreadLoadedListResponse)
THREAD_READ = Request("thread/read", thread_manage.ThreadReadParams, thread_manage.ThreadReadResponse, scope=by_thread)
THREAD_READ_STATE_UPDATE = Request("thread/readState/update", read_state.ThreadReadStateUpdateParams, read_state.ThreadReadStateUpdateResponse, experimental=True, scope=by_thread)
THREAD_TURNS_LIST = Request("thread/turns/list", history.ThreadTurnsListParams, history.ThreadTurnsListResponse, scope=by_thread)
THREAD_ITEMS_LIST = Request("thread/items/list", history.ThreadItemsListParams, history.ThreadItemsListResponse, scope=by_thread)
THREAD_ITEMS_READ = Request("thread/items/read", history.ThreadItemsReadParams, history.ThreadItemsReadResponse, experimental=True, scope=by_thread)
THREAD_INJECT_ITEMS = Request("thread/inject_items", thread_manage.ThreadInjectItemsParams, thread_manage.ThreadInjectItemsResponse, scope=by_thread)
SKILLS_LIST = Request("skills/list", skill.SkillsListParams, skill.SkillsListResponse)
SKILLS_EXTRA_ROOTS_SET = Request("skills/extraRoots/set", skill.SkillsExtraRootsSetParams, skill.SkillsExtraRootsSetResponse)
HOOKS_LIST = Request("hooks/list", hook.HooksListParams, hook.HooksListResponse)
MARKETPLACE_ADD = Request("marketplace/add", marketplace.MarketplaceAddParams, marketplace.MarketplaceAddResponse, scope=by_plugins)
MARKETPLACE_REMOVE = Request("marketplace/remove", marketplace.MarketplaceRemoveParams, marketplace.MarketplaceRemoveResponse, scope=by_plugins)
MARKETPLACE_UPGRADE = Request("marketplace/upgrade", marketplace.MarketplaceUpgradeParams, marketplace.MarketplaceUpgradeResponse, scope=by_plugins)
PLUGIN_LIST = Request("plugin/list", plugin.PluginListParams, plugin.PluginListResponse, scope=by_plugins)
PLUGIN_SEARCH = Request("plugin/search", plugin.PluginSearchParams, plugin.PluginSearchResponse, experimental=True, scope=by_plugins)
PLUGIN_INSTALLED = Request("plugin/installed", plugin.PluginInstalledParams, plugin.PluginInstalledResponse, scope=by_plugins)
PLUGIN_RECONCILE = Request("plugin/reconcile", plugin.PluginReconcileParams, plugin.PluginReconcileResponse, scope=by_plugins)
PLUGIN_READ = Request("plugin/read", plugin.PluginReadParams, plugin.PluginReadResponse, scope=by_plugins)
PLUGIN_SKILL_READ = Request("plugin/skill/read", plugin.PluginSkillReadParams, plugin.PluginSkillReadResponse, scope=by_plugins)
PLUGIN_SHARE_SAVE = Request("plugin/share/save", plugin_share.PluginShareSaveParams, plugin_share.PluginShareSaveResponse, scope=by_plugins)
PLUGIN_SHARE_UPDATE_TARGETS = Request("plugin/share/updateTargets", plugin_share.PluginShareUpdateTargetsParams, plugin_share.PluginShareUpdateTargetsResponse, scope=by_plugins)
PLUGIN_SHARE_LIST = Request("plugin/share/list", plugin_share.PluginShareListParams, plugin_share.PluginShareListResponse, scope=by_plugins)
PLUGIN_SHARE_CHECKOUT = Request("plugin/share/checkout", plugin_share.PluginShareCheckoutParams, plugin_share.PluginShareCheckoutResponse, scope=by_plugins)
PLUGIN_SHARE_DELETE = Request("plugin/share/delete", plugin_share.PluginShareDeleteParams, plugin_share.PluginShareDeleteResponse, scope=by_plugins)
APP_READ = Request("app/read", app.AppsReadParams, app.AppsReadResponse, scope=by_thread)
APP_LIST = Request("app/list", app.AppsListParams, app.AppsListResponse, scope=by_thread)
APP_INSTALLED = Request("app/installed", app.AppsInstalledParams, app.AppsInstalledResponse, scope=by_thread)
FS_READ_FILE = Request("fs/readFile", fs.FsReadFileParams, fs.FsReadFileResponse)
FS_WRITE_FILE = Request("fs/writeFile", fs.FsWriteFileParams, fs.FsWriteFileResponse)
FS_CREATE_DIRECTORY = Request("fs/createDirectory", fs.FsCreateDirectoryParams, fs.FsCreateDirectoryResponse)
FS_GET_METADATA = Request("fs/getMetadata", fs.FsGetMetadataParams, fs.FsGetMetadataResponse)
FS_READ_DIRECTORY = Request("fs/readDirectory", fs.FsReadDirectoryParams, fs.FsReadDirectoryResponse)
FS_REMOVE = Request("fs/remove", fs.FsRemoveParams, fs.FsRemoveResponse)
FS_COPY = Request("fs/copy", fs.FsCopyParams, fs.FsCopyResponse)
FS_WATCH = Request("fs/watch", fs.FsWatchParams, fs.FsWatchResponse, scope=by_watch)
FS_UNWATCH = Request("fs/unwatch", fs.FsUnwatchParams, fs.FsUnwatchResponse, scope=by_watch)
SKILLS_CONFIG_WRITE = Request("skills/config/write", skill.SkillsConfigWriteParams, skill.SkillsConfigWriteResponse, scope=by_config)
PLUGIN_INSTALL = Request("plugin/install", plugin.PluginInstallParams, plugin.PluginInstallResponse, scope=by_plugins)
PLUGIN_UNINSTALL = Request("plugin/uninstall", plugin.PluginUninstallParams, plugin.PluginUninstallResponse, scope=by_plugins)
TURN_START = Request("turn/start", turn.TurnStartParams, turn.TurnStartResponse, scope=by_thread)
TURN_SETTINGS_UPDATE = Request("turn/settings/update", turn.TurnSettingsUpdateParams, turn.TurnSettingsUpdateResponse, experimental=True, scope=by_thread)
TURN_STEER = Request("turn/steer", turn.TurnSteerParams, turn.TurnSteerResponse, scope=by_thread)
TURN_INTERRUPT = Request("turn/interrupt", turn.TurnInterruptParams, turn.TurnInterruptResponse, scope=by_thread)
THREAD_REALTIME_START = Request("thread/realtime/start", realtime.ThreadRealtimeStartParams, realtime.ThreadRealtimeStartResponse, experimental=True, scope=by_thread)
THREAD_REALTIME_APPEND_AUDIO = Request("thread/realtime/appendAudio", realtime.ThreadRealtimeAppendAudioParams, realtime.ThreadRealtimeAppendAudioResponse, experimental=True, scope=by_thread)
THREAD_REALTIME_APPEND_TEXT = Request("thread/realtime/appendText", realtime.ThreadRealtimeAppendTextParams, realtime.ThreadRealtimeAppendTextResponse, experimental=True, scope=by_thread)
THREAD_REALTIME_APPEND_SPEECH = Request("thread/realtime/appendSpeech", realtime.ThreadRealtimeAppendSpeechParams, realtime.ThreadRealtimeAppendSpeechResponse, experimental=True, scope=by_thread)
THREAD_REALTIME_STOP = Request("thread/realtime/stop", realtime.ThreadRealtimeStopParams, realtime.ThreadRealtimeStopResponse, experimental=True, scope=by_thread)
THREAD_TIMELINE_LIST = Request("thread/timeline/list", history.ThreadTimelineListParams, history.ThreadTimelineListResponse, experimental=True, scope=by_thread)
THREAD_REALTIME_LIST_VOICES = Request("thread/realtime/listVoices", realtime.ThreadRealtimeListVoicesParams, realtime.ThreadRealtimeListVoicesResponse, experimental=True)
REVIEW_START = Request("review/start", review.ReviewStartParams, review.ReviewStartResponse, scope=by_thread)
MODEL_LIST = Request("model/list", model.ModelListParams, model.ModelListResponse)
ACCOUNT_GATEWAY_OAUTH_READ = Request("account/gatewayOAuth/read", NoParams, account.GatewayOAuthReadResponse)
ACCOUNT_GATEWAY_OAUTH_LOGIN = Request("account/gatewayOAuth/login", NoParams, account.GatewayOAuthLoginResponse)
ACCOUNT_GATEWAY_OAUTH_CANCEL = Request("account/gatewayOAuth/cancel", NoParams, account.GatewayOAuthCancelResponse)
MODEL_PROVIDER_CAPABILITIES_READ = Request("modelProvider/capabilities/read", model.ModelProviderCapabilitiesReadParams, model.ModelProviderCapabilitiesReadResponse)
EXPERIMENTAL_FEATURE_LIST = Request("experimentalFeature/list", feature.ExperimentalFeatureListParams, feature.ExperimentalFeatureListResponse, scope=by_thread)
PERMISSION_PROFILE_LIST = Request("permissionProfile/list", permission.PermissionProfileListParams, permission.PermissionProfileListResponse)
EXPERIMENTAL_FEATURE_ENABLEMENT_SET = Request("experimentalFeature/enablement/set", feature.ExperimentalFeatureEnablementSetParams, feature.ExperimentalFeatureEnablementSetResponse, scope=by_config)
REMOTE_CONTROL_ENABLE = Request("remoteControl/enable", remote_control.RemoteControlEnableParams, remote_control.RemoteControlEnableResponse, experimental=True)
REMOTE_CONTROL_DISABLE = Request("remoteControl/disable", remote_control.RemoteControlDisableParams, remote_control.RemoteControlDisableResponse, experimental=True)
REMOTE_CONTROL_STATUS_READ = Request("remoteControl/status/read", NoParams, remote_control.RemoteControlStatusReadResponse, experimental=True)
REMOTE_CONTROL_PAIRING_START = Request("remoteControl/pairing/start", remote_control.RemoteControlPairingStartParams, remote_control.RemoteControlPairingStartResponse, experimental=True)
REMOTE_CONTROL_PAIRING_STATUS = Request("remoteControl/pairing/status", remote_control.RemoteControlPairingStatusParams, remote_control.RemoteControlPairingStatusResponse, experimental=True)
REMOTE_CONTROL_CLIENT_LIST = Request("remoteControl/client/list", remote_control.RemoteControlClientsListParams, remote_control.RemoteControlClientsListResponse, experimental=True)
REMOTE_CONTROL_CLIENT_REVOKE = Request("remoteControl/client/revoke", remote_control.RemoteControlClientsRevokeParams, remote_control.RemoteControlClientsRevokeResponse, experimental=True)
COLLABORATION_MODE_LIST = Request("collaborationMode/list", collaboration.CollaborationModeListParams, collaboration.CollaborationModeListResponse, experimental=True)
MOCK_EXPERIMENTAL_METHOD = Request("mock/experimentalMethod", feature.MockExperimentalMethodParams, feature.MockExperimentalMethodResponse, experimental=True)
ENVIRONMENT_ADD = Request("environment/add", environment.EnvironmentAddParams, environment.EnvironmentAddResponse, experimental=True)
ENVIRONMENT_INFO = Request("environment/info", environment.EnvironmentInfoParams, environment.EnvironmentInfoResponse, experimental=True)
ENVIRONMENT_STATUS = Request("environment/status", environment.EnvironmentStatusParams, environment.EnvironmentStatusResponse, experimental=True)
MCP_SERVER_OAUTH_LOGIN = Request("mcpServer/oauth/login", mcp.McpServerOauthLoginParams, mcp.McpServerOauthLoginResponse, scope=by_thread)
CONFIG_MCP_SERVER_RELOAD = Request("config/mcpServer/reload", NoParams, mcp.McpServerRefreshResponse, scope=by_config)
MCP_SERVER_STATUS_LIST = Request("mcpServerStatus/list", mcp.ListMcpServerStatusParams, mcp.ListMcpServerStatusResponse, scope=by_thread)
MCP_SERVER_RESOURCE_READ = Request("mcpServer/resource/read", mcp.McpResourceReadParams, mcp.McpResourceReadResponse, scope=by_thread)
MCP_SERVER_EVENT_STREAM_START = Request("mcpServer/event/stream/start", mcp.McpServerEventStreamStartParams, mcp.McpServerEventStreamStartResponse, experimental=True, scope=by_thread)
MCP_SERVER_EVENT_STREAM_STOP = Request("mcpServer/event/stream/stop", mcp.McpServerEventStreamStopParams, mcp.McpServerEventStreamStopResponse, experimental=True)
MCP_SERVER_TOOL_CALL = Request("mcpServer/tool/call", mcp.McpServerToolCallParams, mcp.McpServerToolCallResponse, scope=by_thread)
WINDOWS_SANDBOX_SETUP_START = Request("windowsSandbox/setupStart", windows_sandbox.WindowsSandboxSetupStartParams, windows_sandbox.WindowsSandboxSetupStartResponse)
WINDOWS_SANDBOX_READINESS = Request("windowsSandbox/readiness", NoParams, windows_sandbox.WindowsSandboxReadinessResponse)
ACCOUNT_LOGIN_START: Request[account.LoginAccountParams, account.LoginAccountResponse] = Request("account/login/start", account.LoginAccountParams, account.LoginAccountResponse, scope=by_account)
ACCOUNT_BEDROCK_DISCOVER = Request("account/bedrock/discover", account.BedrockDiscoverParams, account.BedrockDiscoverResponse, experimental=True)
ACCOUNT_BEDROCK_SETUP: Request[account.BedrockSetupParams, account.BedrockSetupResponse] = Request("account/bedrock/setup", account.BedrockSetupParams, account.BedrockSetupResponse, experimental=True)
ACCOUNT_BEDROCK_CHECK_GOV_CLOUD_REQUIREMENTS = Request("account/bedrock/checkGovCloudRequirements", requirements.BedrockCheckGovCloudRequirementsParams, requirements.BedrockCheckGovCloudRequirementsResponse, experimental=True)
ACCOUNT_LOGIN_CANCEL = Request("account/login/cancel", account.CancelLoginAccountParams, account.CancelLoginAccountResponse, scope=by_account)
ACCOUNT_LOGOUT = Request("account/logout", NoParams, account.LogoutAccountResponse, scope=by_account)
ACCOUNT_RATE_LIMITS_READ = Request("account/rateLimits/read", account_usage.GetAccountRateLimitsParams, account_usage.GetAccountRateLimitsResponse)
ACCOUNT_RATE_LIMIT_RESET_CREDIT_CONSUME = Request("account/rateLimitResetCredit/consume", account_usage.ConsumeAccountRateLimitResetCreditParams, account_usage.ConsumeAccountRateLimitResetCreditResponse)
ACCOUNT_USAGE_READ = Request("account/usage/read", account_usage.GetAccountTokenUsageParams, account_usage.GetAccountTokenUsageResponse, scope=by_thread)
ACCOUNT_WORKSPACE_MESSAGES_READ = Request("account/workspaceMessages/read", NoParams, account.GetWorkspaceMessagesResponse)
ACCOUNT_SEND_ADD_CREDITS_NUDGE_EMAIL = Request("account/sendAddCreditsNudgeEmail", account_usage.SendAddCreditsNudgeEmailParams, account_usage.SendAddCreditsNudgeEmailResponse)
FEEDBACK_UPLOAD = Request("feedback/upload", feedback.FeedbackUploadParams, feedback.FeedbackUploadResponse, scope=by_thread)
COMMAND_EXEC = Request("command/exec", command.CommandExecParams, command.CommandExecResponse, scope=by_process)
COMMAND_EXEC_WRITE = Request("command/exec/write", command.CommandExecWriteParams, command.CommandExecWriteResponse, scope=by_process)
COMMAND_EXEC_TERMINATE = Request("command/exec/terminate", command.CommandExecTerminateParams, command.CommandExecTerminateResponse, scope=by_process)
COMMAND_EXEC_RESIZE = Request("command/exec/resize", command.CommandExecResizeParams, command.CommandExecResizeResponse, scope=by_process)
PROCESS_SPAWN = Request("process/spawn", process.ProcessSpawnParams, process.ProcessSpawnResponse, experimental=True, scope=by_process)
PROCESS_WRITE_STDIN = Request("process/writeStdin", process.ProcessWriteStdinParams, process.ProcessWriteStdinResponse, experimental=True, scope=by_process)
PROCESS_KILL = Request("process/kill", process.ProcessKillParams, process.ProcessKillResponse, experimental=True, scope=by_process)
PROCESS_RESIZE_PTY = Request("process/resizePty", process.ProcessResizePtyParams, process.ProcessResizePtyResponse, experimental=True, scope=by_process)
CONFIG_READ = Request("config/read", config.ConfigReadParams, config.ConfigReadResponse)
EXTERNAL_AGENT_CONFIG_DETECT = Request("externalAgentConfig/detect", external_agent.ExternalAgentConfigDetectParams, external_agent.ExternalAgentConfigDetectResponse)
EXTERNAL_AGENT_CONFIG_IMPORT = Request("externalAgentConfig/import", external_agent.ExternalAgentConfigImportParams, external_agent.ExternalAgentConfigImportResponse)
EXTERNAL_AGENT_CONFIG_IMPORT_RECORD_HISTORY = Request("externalAgentConfig/import/recordHistory", external_agent.ExternalAgentConfigImportHistoryRecordParams, external_agent.ExternalAgentConfigImportHistoryRecordResponse)
EXTERNAL_AGENT_CONFIG_IMPORT_READ_HISTORIES = Request("externalAgentConfig/import/readHistories", NoParams, external_agent.ExternalAgentConfigImportHistoriesReadResponse)
CONFIG_VALUE_WRITE = Request("config/value/write", config.ConfigValueWriteParams, config.ConfigWriteResponse, scope=by_config)
CONFIG_BATCH_WRITE = Request("config/batchWrite", config.ConfigBatchWriteParams, config.ConfigWriteResponse, scope=by_config)
CONFIG_REQUIREMENTS_READ = Request("configRequirements/read", NoParams, requirements.ConfigRequirementsReadResponse)
ACCOUNT_READ = Request("account/read", account.GetAccountParams, account.GetAccountResponse)
FUZZY_FILE_SEARCH = Request("fuzzyFileSearch", fuzzy_file_search.FuzzyFileSearchParams, fuzzy_file_search.FuzzyFileSearchResponse)
FUZZY_FILE_SEARCH_SESSION_START = Request("fuzzyFileSearch/sessionStart", fuzzy_file_search.FuzzyFileSearchSessionStartParams, fuzzy_file_search.FuzzyFileSearchSessionStartResponse, experimental=True, scope=by_session)
FUZZY_FILE_SEARCH_SESSION_UPDATE = Request("fuzzyFileSearch/sessionUpdate", fuzzy_file_search.FuzzyFileSearchSessionUpdateParams, fuzzy_file_search.FuzzyFileSearchSessionUpdateResponse, experimental=True, scope=by_session)
FUZZY_FILE_SEARCH_SESSION_STOP = Request("fuzzyFileSearch/sessionStop", fuzzy_file_search.FuzzyFileSearchSessionStopParams, fuzzy_file_search.FuzzyFileSearchSessionStopResponse, experimental=True, scope=by_session)
# fmt: on

CLIENT_REQUESTS: Final = index(globals(), Request)
