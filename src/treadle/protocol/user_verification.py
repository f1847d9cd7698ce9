"""Verification of the user in front of the device."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Int64, Params, RequestId, Value


class UserVerificationCancelParams(Params, forbid_unknown_fields=True, frozen=True):
    """Cancel an enrolment or a verification that the same connection requested."""

    request_id: RequestId


class UserVerificationCancelResponse(Value, frozen=True):
    """The cancellation was forwarded; completed steps are not undone."""


UserVerificationCancellationReason = Literal["userCancelled", "interrupted"]


class UserVerificationDeleteParams(Params, frozen=True):
    """Delete the credential that the device holds."""


class UserVerificationDeleteResponse(Value, frozen=True):
    """The device no longer holds a credential."""


class UserVerificationEnrollParams(Params, frozen=True):
    """Create a credential on the device, or use the existing one."""


class UserVerificationEnrollResponse(Value, frozen=True):
    """The credential and its public key, which the client still has to register elsewhere."""

    credential_id: str
    algorithm: str | None = None
    public_key: str | None = None


UserVerificationInvalidRequestReason = Literal["invalidParams"]


class InvalidRequestUserVerificationErrorDetails(Value, tag="invalidRequest", frozen=True):
    """The request was invalid."""

    reason: UserVerificationInvalidRequestReason


UserVerificationUnavailableReason = Literal[
    "credentialMissing", "biometricsUnavailable", "providerUnavailable"
]


class UnavailableUserVerificationErrorDetails(Value, tag="unavailable", frozen=True):
    """The device cannot verify a user at present."""

    reason: UserVerificationUnavailableReason


class CancelledUserVerificationErrorDetails(Value, tag="cancelled", frozen=True):
    """The user declined, or the verification was interrupted."""

    reason: UserVerificationCancellationReason


UserVerificationFailureReason = Literal[
    "authenticationFailed", "timeout", "providerError", "serviceError"
]


class FailedUserVerificationErrorDetails(Value, tag="failed", frozen=True):
    """The verification ran and failed."""

    reason: UserVerificationFailureReason


UserVerificationErrorDetails = (
    InvalidRequestUserVerificationErrorDetails
    | UnavailableUserVerificationErrorDetails
    | CancelledUserVerificationErrorDetails
    | FailedUserVerificationErrorDetails
)


class UserVerificationProof(Value, frozen=True):
    """The challenge, signed by the device's credential."""

    credential_id: str
    signature: str


class UserVerificationRpcError(Value, frozen=True):
    """The error object of a failed verification request."""

    code: Int64
    data: UserVerificationErrorDetails
    message: str


class UserVerificationStatusParams(Params, frozen=True):
    """Read whether the device can verify its user; the user is not prompted."""


class UserVerificationStatusResponse(Value, frozen=True):
    """The device's credential, or why verification is unavailable."""

    credential_id: str | None = None
    unavailable_message: str | None = None
    unavailable_reason: UserVerificationUnavailableReason | None = None


class UserVerificationVerifyParams(Params, forbid_unknown_fields=True, frozen=True):
    """Ask the user to prove their presence; the title and description are shown."""

    challenge: str
    description: str
    title: str


class UserVerificationVerifyResponse(Value, frozen=True):
    """The user was verified; contains the proof."""

    proof: UserVerificationProof
