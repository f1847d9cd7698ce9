"""Confirming that the user in front of the device is the right one."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Int64, Params, RequestId, Value


class UserVerificationCancelParams(Params, forbid_unknown_fields=True, frozen=True):
    """Give up on an enrolment or a check that the same connection asked for."""

    request_id: RequestId


class UserVerificationCancelResponse(Value, frozen=True):
    """The wish to cancel was passed on; what is already done stays done."""


UserVerificationCancellationReason = Literal["userCancelled", "interrupted"]


class UserVerificationDeleteParams(Params, frozen=True):
    """Delete the credential that the device holds."""


class UserVerificationDeleteResponse(Value, frozen=True):
    """The device holds no credential any more."""


class UserVerificationEnrollParams(Params, frozen=True):
    """Make a credential on the device, or take the one it has."""


class UserVerificationEnrollResponse(Value, frozen=True):
    """The credential and its public key, which the client still has to register elsewhere."""

    credential_id: str
    algorithm: str | None = None
    public_key: str | None = None


UserVerificationInvalidRequestReason = Literal["invalidParams"]


class InvalidRequestUserVerificationErrorDetails(Value, tag="invalidRequest", frozen=True):
    """The request made no sense."""

    reason: UserVerificationInvalidRequestReason


UserVerificationUnavailableReason = Literal[
    "credentialMissing", "biometricsUnavailable", "providerUnavailable"
]


class UnavailableUserVerificationErrorDetails(Value, tag="unavailable", frozen=True):
    """The device cannot verify anybody at present."""

    reason: UserVerificationUnavailableReason


class CancelledUserVerificationErrorDetails(Value, tag="cancelled", frozen=True):
    """The user declined, or something came between."""

    reason: UserVerificationCancellationReason


UserVerificationFailureReason = Literal[
    "authenticationFailed", "timeout", "providerError", "serviceError"
]


class FailedUserVerificationErrorDetails(Value, tag="failed", frozen=True):
    """The check was made and did not succeed."""

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
    """The error object that a verification request may be answered with."""

    code: Int64
    data: UserVerificationErrorDetails
    message: str


class UserVerificationStatusParams(Params, frozen=True):
    """Ask whether the device could verify its user; the user sees nothing of it."""


class UserVerificationStatusResponse(Value, frozen=True):
    """The device's credential, or why verification is not to be had."""

    credential_id: str | None = None
    unavailable_message: str | None = None
    unavailable_reason: UserVerificationUnavailableReason | None = None


class UserVerificationVerifyParams(Params, forbid_unknown_fields=True, frozen=True):
    """Have the user prove to be present; the title and description are shown."""

    challenge: str
    description: str
    title: str


class UserVerificationVerifyResponse(Value, frozen=True):
    """The user was verified, and here is the proof."""

    proof: UserVerificationProof
