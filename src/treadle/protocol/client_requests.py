"""Every request that a client may send: one line each, and the index by method name."""

from __future__ import annotations

from typing import Final

from treadle.protocol import (
    account,
    account_session,
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
    model_provider,
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
    sample,
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
SERVER_DIAGNOSTICS = Request("server/diagnostics", diagnostics.ServerDiagnosticsParams, diagnostics.ServerDiagnosticsResponse, experimental=True, call="read_server_diagnostics")
USER_VERIFICATION_STATUS = Request("userVerification/status", user_verification.UserVerificationStatusParams, user_verification.UserVerificationStatusResponse, experimental=True, call="read_user_verification_status")
USER_VERIFICATION_ENROLL = Request("userVerification/enroll", user_verification.UserVerificationEnrollParams, user_verification.UserVerificationEnrollResponse, experimental=True, call="enroll_user_verification")
USER_VERIFICATION_DELETE = Request("userVerification/delete", user_verification.UserVerificationDeleteParams, user_verification.UserVerificationDeleteResponse, experimental=True, call="delete_user_verification")
USER_VERIFICATION_VERIFY = Request("userVerification/verify", user_verification.UserVerificationVerifyParams, user_verification.UserVerificationVerifyResponse, experimental=True, call="verify_user")
USER_VERIFICATION_CANCEL = Request("userVerification/cancel", user_verification.UserVerificationCancelParams, user_verification.UserVerificationCancelResponse, experimental=True, call="cancel_user_verification")
THREAD_START = Request("thread/start", thread.ThreadStartParams, thread.ThreadStartResponse, call="start_thread")
THREAD_RESUME = Request("thread/resume", thread.ThreadResumeParams, thread.ThreadResumeResponse, scope=by_thread, call="resume_thread", is_large=True)
THREAD_FORK = Request("thread/fork", thread.ThreadForkParams, thread.ThreadForkResponse, scope=by_thread, call="fork_thread", is_large=True)
THREAD_SAMPLE = Request("thread/sample", sample.ThreadSampleParams, sample.ThreadSampleResponse, experimental=True, call="sample_thread")
THREAD_SAMPLE_CANCEL = Request("thread/sample/cancel", sample.ThreadSampleCancelParams, sample.ThreadSampleCancelResponse, experimental=True, call="cancel_thread_sample")
THREAD_ARCHIVE = Request("thread/archive", thread_manage.ThreadArchiveParams, thread_manage.ThreadArchiveResponse, scope=by_thread, call="archive_thread")
THREAD_DELETE = Request("thread/delete", thread_manage.ThreadDeleteParams, thread_manage.ThreadDeleteResponse, scope=by_thread, call="delete_thread")
THREAD_UNSUBSCRIBE = Request("thread/unsubscribe", thread_manage.ThreadUnsubscribeParams, thread_manage.ThreadUnsubscribeResponse, scope=by_thread, call="unsubscribe_thread")
THREAD_INCREMENT_ELICITATION = Request("thread/increment_elicitation", elicitation.ThreadIncrementElicitationParams, elicitation.ThreadIncrementElicitationResponse, experimental=True, scope=by_thread, call="increment_elicitation")
THREAD_DECREMENT_ELICITATION = Request("thread/decrement_elicitation", elicitation.ThreadDecrementElicitationParams, elicitation.ThreadDecrementElicitationResponse, experimental=True, scope=by_thread, call="decrement_elicitation")
THREAD_NAME_SET = Request("thread/name/set", thread.ThreadSetNameParams, thread.ThreadSetNameResponse, scope=by_thread, call="set_thread_name")
THREAD_PREDICTION_REQUEST = Request("thread/prediction/request", history.ThreadPredictionRequestParams, history.ThreadPredictionRequestResponse, experimental=True, scope=by_thread, call="request_thread_prediction")
THREAD_GOAL_SET = Request("thread/goal/set", goal.ThreadGoalSetParams, goal.ThreadGoalSetResponse, scope=by_thread, call="set_thread_goal")
THREAD_GOAL_GET = Request("thread/goal/get", goal.ThreadGoalGetParams, goal.ThreadGoalGetResponse, scope=by_thread, call="get_thread_goal")
THREAD_GOAL_CLEAR = Request("thread/goal/clear", goal.ThreadGoalClearParams, goal.ThreadGoalClearResponse, scope=by_thread, call="clear_thread_goal")
THREAD_QUEUE_ADD = Request("thread/queue/add", queue.ThreadQueueAddParams, queue.ThreadQueueAddResponse, experimental=True, scope=by_thread, call="add_to_thread_queue")
THREAD_QUEUE_LIST = Request("thread/queue/list", queue.ThreadQueueListParams, queue.ThreadQueueListResponse, experimental=True, scope=by_thread, call="list_thread_queue")
THREAD_QUEUE_UPDATE = Request("thread/queue/update", queue.ThreadQueueUpdateParams, queue.ThreadQueueUpdateResponse, experimental=True, scope=by_thread, call="update_thread_queue")
THREAD_QUEUE_DELETE = Request("thread/queue/delete", queue.ThreadQueueDeleteParams, queue.ThreadQueueDeleteResponse, experimental=True, scope=by_thread, call="delete_from_thread_queue")
THREAD_QUEUE_REORDER = Request("thread/queue/reorder", queue.ThreadQueueReorderParams, queue.ThreadQueueReorderResponse, experimental=True, scope=by_thread, call="reorder_thread_queue")
THREAD_QUEUE_START = Request("thread/queue/start", queue.ThreadQueueStartParams, queue.ThreadQueueStartResponse, experimental=True, scope=by_thread, call="start_thread_queue")
THREAD_METADATA_UPDATE = Request("thread/metadata/update", thread_manage.ThreadMetadataUpdateParams, thread_manage.ThreadMetadataUpdateResponse, scope=by_thread, call="update_thread_metadata")
THREAD_ATTACHMENT_ADD = Request("thread/attachment/add", attachment.ThreadAttachmentAddParams, attachment.ThreadAttachmentAddResponse, scope=by_thread, call="add_thread_attachment")
THREAD_ATTACHMENT_LIST = Request("thread/attachment/list", attachment.ThreadAttachmentListParams, attachment.ThreadAttachmentListResponse, scope=by_thread, call="list_thread_attachments")
THREAD_ATTACHMENT_OWNER_LIST = Request("thread/attachmentOwner/list", attachment.ThreadAttachmentOwnerListParams, attachment.ThreadAttachmentOwnerListResponse, call="list_attachment_owners")
THREAD_ATTACHMENT_REMOVE = Request("thread/attachment/remove", attachment.ThreadAttachmentRemoveParams, attachment.ThreadAttachmentRemoveResponse, scope=by_thread, call="remove_thread_attachment")
THREAD_SECTION_MOVE = Request("thread/section/move", section.ThreadSectionMoveParams, section.ThreadSectionMoveResponse, scope=by_thread, call="move_thread_to_section")
THREAD_SETTINGS_UPDATE = Request("thread/settings/update", settings.ThreadSettingsUpdateParams, settings.ThreadSettingsUpdateResponse, experimental=True, scope=by_thread, call="update_thread_settings")
THREAD_MEMORY_MODE_SET = Request("thread/memoryMode/set", memory.ThreadMemoryModeSetParams, memory.ThreadMemoryModeSetResponse, experimental=True, scope=by_thread, call="set_thread_memory_mode")
THREAD_MEMORY_READ = Request("thread/memory/read", memory.ThreadMemoryReadParams, memory.ThreadMemoryReadResponse, experimental=True, scope=by_thread, call="read_thread_memory")
MEMORY_STATUS = Request("memory/status", memory.MemoryStatusParams, memory.MemoryStatusResponse, experimental=True, call="read_memory_status")
MEMORY_RESET = Request("memory/reset", NoParams, memory.MemoryResetResponse, experimental=True, call="reset_memory")
ROLLOUT_COMPRESS = Request("rollout/compress", NoParams, history.RolloutCompressResponse, experimental=True, call="compress_rollouts")
THREAD_UNARCHIVE = Request("thread/unarchive", thread_manage.ThreadUnarchiveParams, thread_manage.ThreadUnarchiveResponse, scope=by_thread, call="unarchive_thread")
THREAD_COMPACT_START = Request("thread/compact/start", thread_manage.ThreadCompactStartParams, thread_manage.ThreadCompactStartResponse, scope=by_thread, call="compact_thread")
THREAD_SHELL_COMMAND = Request("thread/shellCommand", command.ThreadShellCommandParams, command.ThreadShellCommandResponse, scope=by_thread, call="run_shell_command")
THREAD_APPROVE_GUARDIAN_DENIED_ACTION = Request("thread/approveGuardianDeniedAction", approval.ThreadApproveGuardianDeniedActionParams, approval.ThreadApproveGuardianDeniedActionResponse, scope=by_thread, call="approve_guardian_denied_action")
THREAD_BACKGROUND_TERMINALS_CLEAN = Request("thread/backgroundTerminals/clean", command.ThreadBackgroundTerminalsCleanParams, command.ThreadBackgroundTerminalsCleanResponse, experimental=True, scope=by_thread, call="clean_background_terminals")
THREAD_BACKGROUND_TERMINALS_LIST = Request("thread/backgroundTerminals/list", command.ThreadBackgroundTerminalsListParams, command.ThreadBackgroundTerminalsListResponse, experimental=True, scope=by_thread, call="list_background_terminals")
THREAD_BACKGROUND_TERMINALS_TERMINATE = Request("thread/backgroundTerminals/terminate", command.ThreadBackgroundTerminalsTerminateParams, command.ThreadBackgroundTerminalsTerminateResponse, experimental=True, scope=by_thread, call="terminate_background_terminal")
THREAD_ROLLBACK = Request("thread/rollback", thread_manage.ThreadRollbackParams, thread_manage.ThreadRollbackResponse, scope=by_thread, call="roll_back_thread", is_large=True)
THREAD_REVERT = Request("thread/revert", thread_manage.ThreadRevertParams, thread_manage.ThreadRevertResponse, scope=by_thread, call="revert_thread", is_large=True)
THREAD_LIST = Request("thread/list", thread_manage.ThreadListParams, thread_manage.ThreadListResponse, call="list_threads", is_large=True)
PROJECT_LIST = Request("project/list", project.ProjectListParams, project.ProjectListResponse, experimental=True, scope=by_catalogue, call="list_projects")
PROJECT_READ = Request("project/read", project.ProjectReadParams, project.ProjectReadResponse, experimental=True, scope=by_catalogue, call="read_project")
PROJECT_CREATE = Request("project/create", project.ProjectCreateParams, project.ProjectCreateResponse, experimental=True, scope=by_catalogue, call="create_project")
PROJECT_IMPORT = Request("project/import", project.ProjectImportParams, project.ProjectImportResponse, experimental=True, scope=by_catalogue, call="import_project")
PROJECT_UPDATE = Request("project/update", project.ProjectUpdateParams, project.ProjectUpdateResponse, experimental=True, scope=by_catalogue, call="update_project")
PROJECT_MOVE = Request("project/move", project.ProjectMoveParams, project.ProjectMoveResponse, experimental=True, scope=by_catalogue, call="move_project")
PROJECT_DELETE = Request("project/delete", project.ProjectDeleteParams, project.ProjectDeleteResponse, experimental=True, scope=by_catalogue, call="delete_project")
THREAD_SECTION_LIST = Request("threadSection/list", section.ThreadSectionListParams, section.ThreadSectionListResponse, scope=by_catalogue, call="list_thread_sections")
THREAD_SECTION_CREATE = Request("threadSection/create", section.ThreadSectionCreateParams, section.ThreadSectionCreateResponse, scope=by_catalogue, call="create_thread_section")
THREAD_SECTION_UPDATE = Request("threadSection/update", section.ThreadSectionUpdateParams, section.ThreadSectionUpdateResponse, scope=by_catalogue, call="update_thread_section")
THREAD_SECTION_DELETE = Request("threadSection/delete", section.ThreadSectionDeleteParams, section.ThreadSectionDeleteResponse, scope=by_catalogue, call="delete_thread_section")
THREAD_SEARCH = Request("thread/search", history.ThreadSearchParams, history.ThreadSearchResponse, experimental=True, call="search_threads", is_large=True)
THREAD_SEARCH_OCCURRENCES = Request("thread/searchOccurrences", history.ThreadSearchOccurrencesParams, history.ThreadSearchOccurrencesResponse, experimental=True, scope=by_thread, call="search_thread_occurrences", is_large=True)
THREAD_LOADED_LIST = Request("thread/loaded/list", thread_manage.ThreadLoadedListParams, thread_manage.ThreadLoadedListResponse, call="list_loaded_threads")
THREAD_READ = Request("thread/read", thread_manage.ThreadReadParams, thread_manage.ThreadReadResponse, scope=by_thread, call="read_thread", is_large=True)
THREAD_READ_STATE_UPDATE = Request("thread/readState/update", read_state.ThreadReadStateUpdateParams, read_state.ThreadReadStateUpdateResponse, experimental=True, scope=by_thread, call="update_thread_read_state")
THREAD_TURNS_LIST = Request("thread/turns/list", history.ThreadTurnsListParams, history.ThreadTurnsListResponse, scope=by_thread, call="list_turns", is_large=True)
THREAD_ITEMS_LIST = Request("thread/items/list", history.ThreadItemsListParams, history.ThreadItemsListResponse, scope=by_thread, call="list_items", is_large=True)
THREAD_ITEMS_READ = Request("thread/items/read", history.ThreadItemsReadParams, history.ThreadItemsReadResponse, experimental=True, scope=by_thread, call="read_items", is_large=True)
THREAD_GUARDIAN_REVIEW = Request("thread/guardianReview", sample.ThreadGuardianReviewParams, sample.ThreadGuardianReviewResponse, experimental=True, scope=by_thread, call="assess_injected_command")
THREAD_INJECT_ITEMS = Request("thread/inject_items", thread_manage.ThreadInjectItemsParams, thread_manage.ThreadInjectItemsResponse, scope=by_thread, call="inject_items")
THREAD_PREPARE_APPROVED_PLAN = Request("thread/prepareApprovedPlan", sample.ThreadPrepareApprovedPlanParams, sample.ThreadPrepareApprovedPlanResponse, experimental=True, scope=by_thread, call="prepare_approved_plan")
SKILLS_LIST = Request("skills/list", skill.SkillsListParams, skill.SkillsListResponse, call="list_skills")
SKILLS_EXTRA_ROOTS_SET = Request("skills/extraRoots/set", skill.SkillsExtraRootsSetParams, skill.SkillsExtraRootsSetResponse, call="set_extra_skill_roots")
HOOKS_LIST = Request("hooks/list", hook.HooksListParams, hook.HooksListResponse, call="list_hooks")
MARKETPLACE_ADD = Request("marketplace/add", marketplace.MarketplaceAddParams, marketplace.MarketplaceAddResponse, scope=by_plugins, call="add_marketplace")
MARKETPLACE_REMOVE = Request("marketplace/remove", marketplace.MarketplaceRemoveParams, marketplace.MarketplaceRemoveResponse, scope=by_plugins, call="remove_marketplace")
MARKETPLACE_UPGRADE = Request("marketplace/upgrade", marketplace.MarketplaceUpgradeParams, marketplace.MarketplaceUpgradeResponse, scope=by_plugins, call="upgrade_marketplace")
PLUGIN_LIST = Request("plugin/list", plugin.PluginListParams, plugin.PluginListResponse, scope=by_plugins, call="list_plugins")
PLUGIN_SEARCH = Request("plugin/search", plugin.PluginSearchParams, plugin.PluginSearchResponse, experimental=True, scope=by_plugins, call="search_plugins")
PLUGIN_INSTALLED = Request("plugin/installed", plugin.PluginInstalledParams, plugin.PluginInstalledResponse, scope=by_plugins, call="list_installed_plugins")
PLUGIN_RECONCILE = Request("plugin/reconcile", plugin.PluginReconcileParams, plugin.PluginReconcileResponse, scope=by_plugins, call="reconcile_plugins")
PLUGIN_READ = Request("plugin/read", plugin.PluginReadParams, plugin.PluginReadResponse, scope=by_plugins, call="read_plugin")
PLUGIN_SKILL_READ = Request("plugin/skill/read", plugin.PluginSkillReadParams, plugin.PluginSkillReadResponse, scope=by_plugins, call="read_plugin_skill")
PLUGIN_SHARE_SAVE = Request("plugin/share/save", plugin_share.PluginShareSaveParams, plugin_share.PluginShareSaveResponse, scope=by_plugins, call="save_plugin_share")
PLUGIN_SHARE_UPDATE_TARGETS = Request("plugin/share/updateTargets", plugin_share.PluginShareUpdateTargetsParams, plugin_share.PluginShareUpdateTargetsResponse, scope=by_plugins, call="update_plugin_share_targets")
PLUGIN_SHARE_LIST = Request("plugin/share/list", plugin_share.PluginShareListParams, plugin_share.PluginShareListResponse, scope=by_plugins, call="list_plugin_shares")
PLUGIN_SHARE_CHECKOUT = Request("plugin/share/checkout", plugin_share.PluginShareCheckoutParams, plugin_share.PluginShareCheckoutResponse, scope=by_plugins, call="check_out_plugin_share")
PLUGIN_SHARE_DELETE = Request("plugin/share/delete", plugin_share.PluginShareDeleteParams, plugin_share.PluginShareDeleteResponse, scope=by_plugins, call="delete_plugin_share")
APP_READ = Request("app/read", app.AppsReadParams, app.AppsReadResponse, scope=by_thread, call="read_apps")
APP_LIST = Request("app/list", app.AppsListParams, app.AppsListResponse, scope=by_thread, call="list_apps")
APP_INSTALLED = Request("app/installed", app.AppsInstalledParams, app.AppsInstalledResponse, scope=by_thread, call="list_installed_apps")
FS_READ_FILE = Request("fs/readFile", fs.FsReadFileParams, fs.FsReadFileResponse, call="read_file", is_large=True)
FS_WRITE_FILE = Request("fs/writeFile", fs.FsWriteFileParams, fs.FsWriteFileResponse, call="write_file")
FS_CREATE_DIRECTORY = Request("fs/createDirectory", fs.FsCreateDirectoryParams, fs.FsCreateDirectoryResponse, call="create_directory")
FS_GET_METADATA = Request("fs/getMetadata", fs.FsGetMetadataParams, fs.FsGetMetadataResponse, call="get_file_metadata")
FS_READ_DIRECTORY = Request("fs/readDirectory", fs.FsReadDirectoryParams, fs.FsReadDirectoryResponse, call="read_directory", is_large=True)
FS_REMOVE = Request("fs/remove", fs.FsRemoveParams, fs.FsRemoveResponse, call="remove_file")
FS_COPY = Request("fs/copy", fs.FsCopyParams, fs.FsCopyResponse, call="copy_file")
FS_WATCH = Request("fs/watch", fs.FsWatchParams, fs.FsWatchResponse, scope=by_watch, call="watch_files")
FS_UNWATCH = Request("fs/unwatch", fs.FsUnwatchParams, fs.FsUnwatchResponse, scope=by_watch, call="unwatch_files")
SKILLS_CONFIG_WRITE = Request("skills/config/write", skill.SkillsConfigWriteParams, skill.SkillsConfigWriteResponse, scope=by_config, call="write_skill_config")
PLUGIN_INSTALL = Request("plugin/install", plugin.PluginInstallParams, plugin.PluginInstallResponse, scope=by_plugins, call="install_plugin")
PLUGIN_UNINSTALL = Request("plugin/uninstall", plugin.PluginUninstallParams, plugin.PluginUninstallResponse, scope=by_plugins, call="uninstall_plugin")
TURN_START = Request("turn/start", turn.TurnStartParams, turn.TurnStartResponse, scope=by_thread, call="start_turn")
TURN_SETTINGS_UPDATE = Request("turn/settings/update", turn.TurnSettingsUpdateParams, turn.TurnSettingsUpdateResponse, experimental=True, scope=by_thread, call="update_turn_settings")
TURN_STEER = Request("turn/steer", turn.TurnSteerParams, turn.TurnSteerResponse, scope=by_thread, call="steer_turn")
TURN_INTERRUPT = Request("turn/interrupt", turn.TurnInterruptParams, turn.TurnInterruptResponse, scope=by_thread, call="interrupt_turn")
THREAD_REALTIME_START = Request("thread/realtime/start", realtime.ThreadRealtimeStartParams, realtime.ThreadRealtimeStartResponse, experimental=True, scope=by_thread, call="start_realtime")
THREAD_REALTIME_APPEND_AUDIO = Request("thread/realtime/appendAudio", realtime.ThreadRealtimeAppendAudioParams, realtime.ThreadRealtimeAppendAudioResponse, experimental=True, scope=by_thread, call="append_realtime_audio")
THREAD_REALTIME_APPEND_TEXT = Request("thread/realtime/appendText", realtime.ThreadRealtimeAppendTextParams, realtime.ThreadRealtimeAppendTextResponse, experimental=True, scope=by_thread, call="append_realtime_text")
THREAD_REALTIME_APPEND_SPEECH = Request("thread/realtime/appendSpeech", realtime.ThreadRealtimeAppendSpeechParams, realtime.ThreadRealtimeAppendSpeechResponse, experimental=True, scope=by_thread, call="append_realtime_speech")
THREAD_REALTIME_STOP = Request("thread/realtime/stop", realtime.ThreadRealtimeStopParams, realtime.ThreadRealtimeStopResponse, experimental=True, scope=by_thread, call="stop_realtime")
THREAD_TIMELINE_LIST = Request("thread/timeline/list", history.ThreadTimelineListParams, history.ThreadTimelineListResponse, experimental=True, scope=by_thread, call="list_timeline", is_large=True)
THREAD_REALTIME_LIST_VOICES = Request("thread/realtime/listVoices", realtime.ThreadRealtimeListVoicesParams, realtime.ThreadRealtimeListVoicesResponse, experimental=True, call="list_realtime_voices")
REVIEW_START = Request("review/start", review.ReviewStartParams, review.ReviewStartResponse, scope=by_thread, call="start_review")
MODEL_LIST = Request("model/list", model.ModelListParams, model.ModelListResponse, call="list_models")
ACCOUNT_GATEWAY_OAUTH_READ = Request("account/gatewayOAuth/read", account.GatewayOAuthReadParams, account.GatewayOAuthReadResponse, call="read_gateway_oauth")
ACCOUNT_GATEWAY_OAUTH_LOGIN = Request("account/gatewayOAuth/login", account.GatewayOAuthLoginParams, account.GatewayOAuthLoginResponse, call="log_in_to_gateway")
ACCOUNT_GATEWAY_OAUTH_CANCEL = Request("account/gatewayOAuth/cancel", NoParams, account.GatewayOAuthCancelResponse, call="cancel_gateway_login")
MODEL_PROVIDER_LIST = Request("modelProvider/list", model_provider.ModelProviderListParams, model_provider.ModelProviderListResponse, call="list_model_providers")
MODEL_PROVIDER_CONFIG_WRITE = Request("modelProvider/config/write", model_provider.ModelProviderConfigWriteParams, model_provider.ModelProviderConfigWriteResponse, scope=by_config, call="write_model_provider_config")
MODEL_PROVIDER_CAPABILITIES_READ = Request("modelProvider/capabilities/read", model.ModelProviderCapabilitiesReadParams, model.ModelProviderCapabilitiesReadResponse, call="read_model_provider_capabilities")
EXPERIMENTAL_FEATURE_LIST = Request("experimentalFeature/list", feature.ExperimentalFeatureListParams, feature.ExperimentalFeatureListResponse, scope=by_thread, call="list_experimental_features")
PERMISSION_PROFILE_LIST = Request("permissionProfile/list", permission.PermissionProfileListParams, permission.PermissionProfileListResponse, call="list_permission_profiles")
EXPERIMENTAL_FEATURE_ENABLEMENT_SET = Request("experimentalFeature/enablement/set", feature.ExperimentalFeatureEnablementSetParams, feature.ExperimentalFeatureEnablementSetResponse, scope=by_config, call="set_experimental_features")
REMOTE_CONTROL_ENABLE = Request("remoteControl/enable", remote_control.RemoteControlEnableParams, remote_control.RemoteControlEnableResponse, experimental=True, call="enable_remote_control")
REMOTE_CONTROL_DISABLE = Request("remoteControl/disable", remote_control.RemoteControlDisableParams, remote_control.RemoteControlDisableResponse, experimental=True, call="disable_remote_control")
REMOTE_CONTROL_STATUS_READ = Request("remoteControl/status/read", NoParams, remote_control.RemoteControlStatusReadResponse, experimental=True, call="read_remote_control_status")
REMOTE_CONTROL_PAIRING_START = Request("remoteControl/pairing/start", remote_control.RemoteControlPairingStartParams, remote_control.RemoteControlPairingStartResponse, experimental=True, call="start_remote_control_pairing")
REMOTE_CONTROL_PAIRING_STATUS = Request("remoteControl/pairing/status", remote_control.RemoteControlPairingStatusParams, remote_control.RemoteControlPairingStatusResponse, experimental=True, call="read_remote_control_pairing")
REMOTE_CONTROL_CLIENT_LIST = Request("remoteControl/client/list", remote_control.RemoteControlClientsListParams, remote_control.RemoteControlClientsListResponse, experimental=True, call="list_remote_control_clients")
REMOTE_CONTROL_CLIENT_REVOKE = Request("remoteControl/client/revoke", remote_control.RemoteControlClientsRevokeParams, remote_control.RemoteControlClientsRevokeResponse, experimental=True, call="revoke_remote_control_client")
COLLABORATION_MODE_LIST = Request("collaborationMode/list", collaboration.CollaborationModeListParams, collaboration.CollaborationModeListResponse, experimental=True, call="list_collaboration_modes")
MOCK_EXPERIMENTAL_METHOD = Request("mock/experimentalMethod", feature.MockExperimentalMethodParams, feature.MockExperimentalMethodResponse, experimental=True, call="call_mock_method")
ENVIRONMENT_ADD = Request("environment/add", environment.EnvironmentAddParams, environment.EnvironmentAddResponse, experimental=True, call="add_environment")
ENVIRONMENT_INFO = Request("environment/info", environment.EnvironmentInfoParams, environment.EnvironmentInfoResponse, experimental=True, call="read_environment_info")
ENVIRONMENT_STATUS = Request("environment/status", environment.EnvironmentStatusParams, environment.EnvironmentStatusResponse, experimental=True, call="read_environment_status")
MCP_SERVER_OAUTH_LOGIN = Request("mcpServer/oauth/login", mcp.McpServerOauthLoginParams, mcp.McpServerOauthLoginResponse, scope=by_thread, call="log_in_to_mcp_server")
CONFIG_MCP_SERVER_RELOAD = Request("config/mcpServer/reload", NoParams, mcp.McpServerRefreshResponse, scope=by_config, call="reload_mcp_servers")
MCP_SERVER_STATUS_LIST = Request("mcpServerStatus/list", mcp.ListMcpServerStatusParams, mcp.ListMcpServerStatusResponse, scope=by_thread, call="list_mcp_servers")
MCP_SERVER_RESOURCE_READ = Request("mcpServer/resource/read", mcp.McpResourceReadParams, mcp.McpResourceReadResponse, scope=by_thread, call="read_mcp_resource")
MCP_SERVER_EVENT_STREAM_START = Request("mcpServer/event/stream/start", mcp.McpServerEventStreamStartParams, mcp.McpServerEventStreamStartResponse, experimental=True, scope=by_thread, call="start_mcp_event_stream")
MCP_SERVER_EVENT_STREAM_STOP = Request("mcpServer/event/stream/stop", mcp.McpServerEventStreamStopParams, mcp.McpServerEventStreamStopResponse, experimental=True, call="stop_mcp_event_stream")
MCP_SERVER_TOOL_CALL = Request("mcpServer/tool/call", mcp.McpServerToolCallParams, mcp.McpServerToolCallResponse, scope=by_thread, call="call_mcp_tool")
WINDOWS_SANDBOX_SETUP_START = Request("windowsSandbox/setupStart", windows_sandbox.WindowsSandboxSetupStartParams, windows_sandbox.WindowsSandboxSetupStartResponse, call="start_windows_sandbox_setup")
WINDOWS_SANDBOX_READINESS = Request("windowsSandbox/readiness", NoParams, windows_sandbox.WindowsSandboxReadinessResponse, call="read_windows_sandbox_readiness")
ACCOUNT_LOGIN_START: Request[account.LoginAccountParams, account.LoginAccountResponse] = Request("account/login/start", account.LoginAccountParams, account.LoginAccountResponse, scope=by_account, call="start_login")
ACCOUNT_BEDROCK_DISCOVER = Request("account/bedrock/discover", account.BedrockDiscoverParams, account.BedrockDiscoverResponse, experimental=True, call="discover_bedrock")
ACCOUNT_BEDROCK_SETUP: Request[account.BedrockSetupParams, account.BedrockSetupResponse] = Request("account/bedrock/setup", account.BedrockSetupParams, account.BedrockSetupResponse, experimental=True, call="set_up_bedrock")
ACCOUNT_GCP_SETUP = Request("account/gcp/setup", model_provider.GcpSetupParams, model_provider.GcpSetupResponse, experimental=True, call="set_up_gcp")
ACCOUNT_BEDROCK_CHECK_GOV_CLOUD_REQUIREMENTS = Request("account/bedrock/checkGovCloudRequirements", requirements.BedrockCheckGovCloudRequirementsParams, requirements.BedrockCheckGovCloudRequirementsResponse, experimental=True, call="check_bedrock_gov_cloud")
ACCOUNT_LOGIN_CANCEL = Request("account/login/cancel", account.CancelLoginAccountParams, account.CancelLoginAccountResponse, scope=by_account, call="cancel_login")
ACCOUNT_SESSION_LIST = Request("accountSession/list", account_session.AccountSessionsListParams, account_session.AccountSessionsResponse, experimental=True, scope=by_account, call="list_account_sessions")
ACCOUNT_SESSION_SWITCH: Request[account_session.AccountSessionsSwitchParams, account_session.AccountSessionsSwitchResponse] = Request("accountSession/switch", account_session.AccountSessionsSwitchParams, account_session.AccountSessionsSwitchResponse, experimental=True, scope=by_account, call="switch_account_session")
ACCOUNT_LOGOUT = Request("account/logout", NoParams, account.LogoutAccountResponse, scope=by_account, call="logout")
ACCOUNT_SECURITY_SETUP_READ = Request("account/securitySetup/read", NoParams, account_session.GetAccountSecuritySetupResponse, call="read_account_security_setup")
ACCOUNT_RATE_LIMITS_READ = Request("account/rateLimits/read", account_usage.GetAccountRateLimitsParams, account_usage.GetAccountRateLimitsResponse, call="read_rate_limits")
ACCOUNT_RATE_LIMIT_RESET_CREDIT_CONSUME = Request("account/rateLimitResetCredit/consume", account_usage.ConsumeAccountRateLimitResetCreditParams, account_usage.ConsumeAccountRateLimitResetCreditResponse, call="consume_rate_limit_reset_credit")
ACCOUNT_USAGE_READ = Request("account/usage/read", account_usage.GetAccountTokenUsageParams, account_usage.GetAccountTokenUsageResponse, scope=by_thread, call="read_account_usage")
ACCOUNT_WORKSPACE_MESSAGES_READ = Request("account/workspaceMessages/read", NoParams, account.GetWorkspaceMessagesResponse, call="read_workspace_messages")
ACCOUNT_SEND_ADD_CREDITS_NUDGE_EMAIL = Request("account/sendAddCreditsNudgeEmail", account_usage.SendAddCreditsNudgeEmailParams, account_usage.SendAddCreditsNudgeEmailResponse, call="send_add_credits_nudge_email")
FEEDBACK_UPLOAD = Request("feedback/upload", feedback.FeedbackUploadParams, feedback.FeedbackUploadResponse, scope=by_thread, call="upload_feedback")
FEEDBACK_SAVE = Request("feedback/save", feedback.FeedbackSaveParams, feedback.FeedbackSaveResponse, scope=by_thread, call="save_feedback")
COMMAND_EXEC = Request("command/exec", command.CommandExecParams, command.CommandExecResponse, scope=by_process, call="exec_command")
COMMAND_EXEC_WRITE = Request("command/exec/write", command.CommandExecWriteParams, command.CommandExecWriteResponse, scope=by_process, call="write_to_command")
COMMAND_EXEC_TERMINATE = Request("command/exec/terminate", command.CommandExecTerminateParams, command.CommandExecTerminateResponse, scope=by_process, call="terminate_command")
COMMAND_EXEC_RESIZE = Request("command/exec/resize", command.CommandExecResizeParams, command.CommandExecResizeResponse, scope=by_process, call="resize_command")
PROCESS_SPAWN = Request("process/spawn", process.ProcessSpawnParams, process.ProcessSpawnResponse, experimental=True, scope=by_process, call="spawn_process")
PROCESS_WRITE_STDIN = Request("process/writeStdin", process.ProcessWriteStdinParams, process.ProcessWriteStdinResponse, experimental=True, scope=by_process, call="write_to_process")
PROCESS_KILL = Request("process/kill", process.ProcessKillParams, process.ProcessKillResponse, experimental=True, scope=by_process, call="kill_process")
PROCESS_RESIZE_PTY = Request("process/resizePty", process.ProcessResizePtyParams, process.ProcessResizePtyResponse, experimental=True, scope=by_process, call="resize_process")
CONFIG_READ = Request("config/read", config.ConfigReadParams, config.ConfigReadResponse, call="read_config")
EXTERNAL_AGENT_CONFIG_DETECT = Request("externalAgentConfig/detect", external_agent.ExternalAgentConfigDetectParams, external_agent.ExternalAgentConfigDetectResponse, call="detect_external_agent_config")
EXTERNAL_AGENT_CONFIG_IMPORT = Request("externalAgentConfig/import", external_agent.ExternalAgentConfigImportParams, external_agent.ExternalAgentConfigImportResponse, call="import_external_agent_config")
EXTERNAL_AGENT_CONFIG_IMPORT_RECORD_HISTORY = Request("externalAgentConfig/import/recordHistory", external_agent.ExternalAgentConfigImportHistoryRecordParams, external_agent.ExternalAgentConfigImportHistoryRecordResponse, call="record_external_agent_import")
EXTERNAL_AGENT_CONFIG_IMPORT_READ_HISTORIES = Request("externalAgentConfig/import/readHistories", NoParams, external_agent.ExternalAgentConfigImportHistoriesReadResponse, call="read_external_agent_imports")
CONFIG_VALUE_WRITE = Request("config/value/write", config.ConfigValueWriteParams, config.ConfigWriteResponse, scope=by_config, call="write_config_value")
CONFIG_BATCH_WRITE = Request("config/batchWrite", config.ConfigBatchWriteParams, config.ConfigWriteResponse, scope=by_config, call="write_config_values")
CONFIG_REQUIREMENTS_READ = Request("configRequirements/read", NoParams, requirements.ConfigRequirementsReadResponse, call="read_config_requirements")
ACCOUNT_READ = Request("account/read", account.GetAccountParams, account.GetAccountResponse, call="read_account")
FUZZY_FILE_SEARCH = Request("fuzzyFileSearch", fuzzy_file_search.FuzzyFileSearchParams, fuzzy_file_search.FuzzyFileSearchResponse, call="search_files")
FUZZY_FILE_SEARCH_SESSION_START = Request("fuzzyFileSearch/sessionStart", fuzzy_file_search.FuzzyFileSearchSessionStartParams, fuzzy_file_search.FuzzyFileSearchSessionStartResponse, experimental=True, scope=by_session, call="start_file_search")
FUZZY_FILE_SEARCH_SESSION_UPDATE = Request("fuzzyFileSearch/sessionUpdate", fuzzy_file_search.FuzzyFileSearchSessionUpdateParams, fuzzy_file_search.FuzzyFileSearchSessionUpdateResponse, experimental=True, scope=by_session, call="update_file_search")
FUZZY_FILE_SEARCH_SESSION_STOP = Request("fuzzyFileSearch/sessionStop", fuzzy_file_search.FuzzyFileSearchSessionStopParams, fuzzy_file_search.FuzzyFileSearchSessionStopResponse, experimental=True, scope=by_session, call="stop_file_search")
# fmt: on

CLIENT_REQUESTS: Final = index(globals(), Request)
