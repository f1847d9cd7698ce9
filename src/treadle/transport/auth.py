"""Authentication of WebSocket peers: capability tokens and signed bearer tokens.

Knows nothing of HTTP beyond the value of one Authorization header. No secret shows in a repr.
"""

import hashlib
import hmac
import ipaddress
import re
import time
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

CAPABILITY_TOKEN: Final = "capability-token"  # noqa: S105 - the name of a mode
SIGNED_BEARER_TOKEN: Final = "signed-bearer-token"  # noqa: S105 - the name of a mode
AuthMode = Literal["capability-token", "signed-bearer-token"]

DEFAULT_CLOCK_SKEW_SECONDS: Final = 30

_MIN_SECRET_BYTES: Final = 32
_MAX_INT64: Final = 2**63 - 1
_SHA256_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")
_INVALID_JWT: Final = "invalid websocket jwt"


class AuthConfigError(Exception):
    """The requested authentication cannot be set up."""


class CapabilityToken:
    """Admits peers that hold one token, of which only the digest is stored."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    @classmethod
    def from_file(cls, path: str | Path) -> "CapabilityToken":
        """Read the token from a file, once.

        Raises:
            AuthConfigError: the file cannot be read, or is empty.
        """
        return cls(hashlib.sha256(_read_secret(path)).digest())

    @classmethod
    def from_sha256(cls, digest: str) -> "CapabilityToken":
        """Use the token's SHA-256 in hexadecimal.

        Raises:
            AuthConfigError: it is not a SHA-256 digest in hexadecimal.
        """
        text = digest.strip()
        if not _SHA256_HEX.fullmatch(text):
            raise AuthConfigError(
                "--ws-token-sha256 must be a 64-character hex SHA-256 digest",
            )
        return cls(bytes.fromhex(text))

    def check(self, header: str | None, now: float | None = None) -> str | None:  # noqa: ARG002 - a token has no age; the two kinds share this signature
        """Return what is wrong with an Authorization header, `None` if it is valid."""
        token, error = _bearer(header)
        if error:
            return error
        # Digests have one length, so the comparison reveals nothing about the token's.
        digest = hashlib.sha256(token.encode()).digest()
        is_valid = hmac.compare_digest(digest, self._digest)
        return None if is_valid else "invalid websocket bearer token"


class SignedBearer:
    """Admits peers with an unexpired JWT that was signed (HS256) with the shared secret."""

    def __init__(
        self, secret: bytes, *, issuer: str | None, audience: str | None, skew: int
    ) -> None:
        self._secret = secret
        self._issuer = issuer
        self._audience = audience
        self._skew = skew

    @classmethod
    def from_file(
        cls,
        secret_file: str | Path,
        *,
        issuer: str | None = None,
        audience: str | None = None,
        max_clock_skew_seconds: int = DEFAULT_CLOCK_SKEW_SECONDS,
    ) -> "SignedBearer":
        """Read the shared secret from a file, once.

        Raises:
            AuthConfigError: the file cannot be read or is too short, or the skew is too large.
        """
        if not 0 <= max_clock_skew_seconds <= _MAX_INT64:
            raise AuthConfigError("websocket auth clock skew must fit in a signed 64-bit integer")
        secret = _read_secret(secret_file)
        if len(secret) < _MIN_SECRET_BYTES:
            raise AuthConfigError(
                f"signed websocket bearer secret {Path(secret_file).absolute()} "
                f"must be at least {_MIN_SECRET_BYTES} bytes",
            )
        return cls(secret, issuer=issuer, audience=audience, skew=max_clock_skew_seconds)

    def check(self, header: str | None, now: float | None = None) -> str | None:
        """Return what is wrong with an Authorization header at a time, `None` if it is valid."""
        token, error = _bearer(header)
        if error:
            return error
        claims = _verified_claims(token, self._secret)
        if claims is None:
            return _INVALID_JWT
        return self._check_claims(claims, int(time.time() if now is None else now))

    def _check_claims(self, claims: "_Claims", now: int) -> str | None:
        if now > claims.exp + self._skew:
            return "expired websocket jwt"
        if claims.nbf is not None and now < claims.nbf - self._skew:
            return "websocket jwt is not valid yet"
        if self._issuer is not None and claims.iss != self._issuer:
            return "websocket jwt issuer mismatch"
        audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud or []
        if self._audience is not None and self._audience not in audiences:
            return "websocket jwt audience mismatch"
        return None


Auth = CapabilityToken | SignedBearer


def auth_from_flags(
    mode: AuthMode | None,
    *,
    token_file: str | Path | None = None,
    token_sha256: str | None = None,
    shared_secret_file: str | Path | None = None,
    issuer: str | None = None,
    audience: str | None = None,
    max_clock_skew_seconds: int | None = None,
) -> Auth | None:
    """Build the authentication that the `--ws-*` flags describe, `None` without any flags.

    Raises:
        AuthConfigError: the flags contradict each other, or a secret is unusable.
    """
    has_token_flags = token_file is not None or token_sha256 is not None
    signed_flags = (shared_secret_file, issuer, audience, max_clock_skew_seconds)
    has_signed_flags = any(flag is not None for flag in signed_flags)
    if mode is None:
        if has_token_flags or has_signed_flags:
            raise AuthConfigError(
                "websocket auth flags require `--ws-auth capability-token` "
                "or `--ws-auth signed-bearer-token`",
            )
        return None
    if mode == CAPABILITY_TOKEN:
        if has_signed_flags:
            raise AuthConfigError(
                "`--ws-shared-secret-file`, `--ws-issuer`, `--ws-audience`, and "
                "`--ws-max-clock-skew-seconds` require `--ws-auth signed-bearer-token`",
            )
        return _capability_token(token_file, token_sha256)
    if has_token_flags:
        raise AuthConfigError(
            "`--ws-token-file` and `--ws-token-sha256` require "
            "`--ws-auth capability-token`, not `signed-bearer-token`",
        )
    return _signed_bearer(shared_secret_file, issuer, audience, max_clock_skew_seconds)


def refuse_open_listener(host: str, port: int, auth: Auth | None) -> None:
    """Refuse a listener that other machines can reach unless it has authentication.

    Raises:
        AuthConfigError: the host is not loopback and there is no authentication.
    """
    if auth is None and not _is_loopback(host):
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise AuthConfigError(
            f"refusing to start non-loopback websocket listener {where} without auth; "
            "configure `--ws-auth capability-token` or `--ws-auth signed-bearer-token`",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, which may resolve to any address
        return host == "localhost"


def _capability_token(token_file: str | Path | None, token_sha256: str | None) -> CapabilityToken:
    if token_file is not None and token_sha256 is not None:
        raise AuthConfigError("`--ws-token-file` and `--ws-token-sha256` are mutually exclusive")
    if token_file is not None:
        return CapabilityToken.from_file(token_file)
    if token_sha256 is not None:
        return CapabilityToken.from_sha256(token_sha256)
    raise AuthConfigError(
        "`--ws-token-file` or `--ws-token-sha256` is required "
        "when `--ws-auth capability-token` is set",
    )


def _signed_bearer(
    secret_file: str | Path | None, issuer: str | None, audience: str | None, skew: int | None
) -> SignedBearer:
    if secret_file is None:
        raise AuthConfigError(
            "`--ws-shared-secret-file` is required when `--ws-auth signed-bearer-token` is set",
        )
    return SignedBearer.from_file(
        secret_file,
        issuer=issuer,
        audience=audience,
        max_clock_skew_seconds=DEFAULT_CLOCK_SKEW_SECONDS if skew is None else skew,
    )


class _Claims(msgspec.Struct):
    """The claims of a JWT that we read; a claim of another type invalidates the token."""

    exp: Annotated[int, msgspec.Meta(ge=-_MAX_INT64 - 1, le=_MAX_INT64)]
    nbf: Annotated[int, msgspec.Meta(ge=-_MAX_INT64 - 1, le=_MAX_INT64)] | None = None
    iss: str | None = None
    aud: str | list[str] | None = None


def _verified_claims(token: str, secret: bytes) -> _Claims | None:
    """Return a JWT's claims, `None` unless it is well-formed and signed with `secret`."""
    import jwt  # 70 ms that only a server with signed tokens pays

    try:
        payload = jwt.PyJWS().decode(token, secret, algorithms=["HS256"])
        # strict: JSON's 1.0 and "1" are not integers here.
        return msgspec.json.decode(payload, type=_Claims)
    # Deep nesting in a forged header overflows the parser before the signature is checked.
    except (jwt.PyJWTError, msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _bearer(header: str | None) -> tuple[str, str | None]:
    """Split an Authorization header into its bearer token and an error."""
    if header is None:
        return "", "missing websocket bearer token"
    scheme, _, rest = header.partition(" ")
    token = rest.strip()
    if scheme.lower() != "bearer" or not token or not header.isascii():
        return "", "invalid authorization header"
    return token, None


def _read_secret(path: str | Path) -> bytes:
    where = Path(path).absolute()
    try:
        secret = where.read_bytes().strip()
    except OSError as error:
        raise AuthConfigError(
            f"failed to read websocket auth secret {where}: "
            f"{error.strerror} (os error {error.errno})",
        ) from error
    if not secret:
        raise AuthConfigError(f"websocket auth secret {where} must not be empty")
    return secret
