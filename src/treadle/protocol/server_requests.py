"""Every request that the server may send to a client: one line each, and the index by method."""

from __future__ import annotations

from typing import Final

from treadle.protocol import account, approval, elicitation, permission, tool
from treadle.protocol.method import Request, index

# fmt: off
# The table is easiest to read with one method per line, however long.
ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL = Request("item/commandExecution/requestApproval", approval.CommandExecutionRequestApprovalParams, approval.CommandExecutionRequestApprovalResponse)
ITEM_FILE_CHANGE_REQUEST_APPROVAL = Request("item/fileChange/requestApproval", approval.FileChangeRequestApprovalParams, approval.FileChangeRequestApprovalResponse)
ITEM_TOOL_REQUEST_USER_INPUT = Request("item/tool/requestUserInput", tool.ToolRequestUserInputParams, tool.ToolRequestUserInputResponse)
MCP_SERVER_ELICITATION_REQUEST: Request[elicitation.McpServerElicitationRequestParams, elicitation.McpServerElicitationRequestResponse] = Request("mcpServer/elicitation/request", elicitation.McpServerElicitationRequestParams, elicitation.McpServerElicitationRequestResponse)
ITEM_PERMISSIONS_REQUEST_APPROVAL = Request("item/permissions/requestApproval", permission.PermissionsRequestApprovalParams, permission.PermissionsRequestApprovalResponse)
ITEM_TOOL_CALL = Request("item/tool/call", tool.DynamicToolCallParams, tool.DynamicToolCallResponse)
ACCOUNT_CHATGPT_AUTH_TOKENS_REFRESH = Request("account/chatgptAuthTokens/refresh", account.ChatgptAuthTokensRefreshParams, account.ChatgptAuthTokensRefreshResponse)
ATTESTATION_GENERATE = Request("attestation/generate", tool.AttestationGenerateParams, tool.AttestationGenerateResponse)
CURRENT_TIME_READ = Request("currentTime/read", tool.CurrentTimeReadParams, tool.CurrentTimeReadResponse, experimental=True)
APPLY_PATCH_APPROVAL = Request("applyPatchApproval", approval.ApplyPatchApprovalParams, approval.ApplyPatchApprovalResponse)
EXEC_COMMAND_APPROVAL = Request("execCommandApproval", approval.ExecCommandApprovalParams, approval.ExecCommandApprovalResponse)
# fmt: on

SERVER_REQUESTS: Final = index(globals(), Request)
