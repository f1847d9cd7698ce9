"""Tokens: which are accepted, and how others are refused."""

import base64
import hashlib
import hmac
from pathlib import Path

import pytest

from treadle.transport.auth import (
    Auth,
    AuthConfigError,
    CapabilityToken,
    SignedBearer,
    auth_from_flags,
)

NOW = 1_800_000_000
SECRET = b"k" * 32
INVALID = "invalid websocket jwt"


def b64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def jwt(claims: str, header: str = '{"alg":"HS256"}', key: bytes = SECRET) -> str:
    """Sign by hand, so that invalid content can be signed."""
    body = b64(header.encode()) + b"." + b64(claims.encode())
    return (body + b"." + b64(hmac.digest(key, body, "sha256"))).decode()


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(b" " + SECRET + b"\n")
    return path


@pytest.fixture
def token(tmp_path: Path) -> CapabilityToken:
    path = tmp_path / "token"
    path.write_text("  s3cret\n")
    return CapabilityToken.from_file(path)


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ("Bearer s3cret", None),
        ("bearer s3cret", None),
        ("BEARER    s3cret  ", None),
        (None, "missing websocket bearer token"),
        ("Bearer", "invalid authorization header"),
        ("Bearer ", "invalid authorization header"),
        ("Bearer\ts3cret", "invalid authorization header"),
        ("Basic s3cret", "invalid authorization header"),
        ("s3cret", "invalid authorization header"),
        ("", "invalid authorization header"),
        ("Bearer \xff", "invalid authorization header"),
        ("Bearer S3CRET", "invalid websocket bearer token"),
        ("Bearer a b", "invalid websocket bearer token"),
    ],
)
def test_a_capability_token_must_match(
    token: CapabilityToken, header: str | None, complaint: str | None
) -> None:
    by_digest = CapabilityToken.from_sha256(hashlib.sha256(b"s3cret").hexdigest().upper())

    assert (token.check(header), by_digest.check(header)) == (complaint, complaint)


@pytest.mark.parametrize(
    ("claims", "complaint"),
    [
        (f'{{"exp":{NOW + 9}}}', None),
        (f'{{"exp":{NOW - 30}}}', None),
        (f'{{"exp":{NOW - 31}}}', "expired websocket jwt"),
        ('{"exp":-5}', "expired websocket jwt"),
        ('{"exp":9223372036854775807}', None),
        ('{"exp":9223372036854775808}', INVALID),
        (f'{{"exp":{NOW}.0}}', INVALID),
        (f'{{"exp":"{NOW}"}}', INVALID),
        ('{"exp":true}', INVALID),
        ('{"exp":null}', INVALID),
        ("{}", INVALID),
        ("[1]", INVALID),
        ("nonsense", INVALID),
        (f'{{"exp":{NOW},"nbf":null}}', None),
        (f'{{"exp":{NOW},"nbf":{NOW + 30}}}', None),
        (f'{{"exp":{NOW},"nbf":{NOW + 31}}}', "websocket jwt is not valid yet"),
        (f'{{"exp":{NOW},"nbf":"x"}}', INVALID),
        (f'{{"exp":1,"nbf":{NOW + 99}}}', "expired websocket jwt"),
        (f'{{"exp":{NOW},"iss":"any","aud":"any"}}', None),
        (f'{{"exp":{NOW},"iss":["me"]}}', INVALID),
        (f'{{"exp":{NOW},"aud":5}}', INVALID),
        (f'{{"exp":{NOW},"aud":["a",5]}}', INVALID),
        (f'{{"exp":{NOW},"iat":{NOW + 999},"sub":5,"jti":5}}', None),
    ],
)
def test_claims_are_checked_as_by_the_reference(
    secret_file: Path, claims: str, complaint: str | None
) -> None:
    auth = SignedBearer.from_file(secret_file)

    assert auth.check(f"Bearer {jwt(claims)}", now=NOW) == complaint


@pytest.mark.parametrize(
    ("rest", "complaint"),
    [
        ('"iss":"me","aud":"you"', None),
        ('"iss":"me","aud":["a","you"]', None),
        ('"aud":"you"', "websocket jwt issuer mismatch"),
        ('"iss":"bad","aud":"bad"', "websocket jwt issuer mismatch"),
        ('"iss":"me"', "websocket jwt audience mismatch"),
        ('"iss":"me","aud":[]', "websocket jwt audience mismatch"),
        ('"iss":"me","aud":null', "websocket jwt audience mismatch"),
    ],
)
def test_issuer_and_audience_count_when_configured(
    secret_file: Path, rest: str, complaint: str | None
) -> None:
    auth = SignedBearer.from_file(secret_file, issuer="me", audience="you")

    token = jwt(f'{{"exp":{NOW},{rest}}}')

    assert auth.check(f"Bearer {token}", now=NOW) == complaint


@pytest.mark.parametrize(
    "token",
    [
        jwt(f'{{"exp":{NOW}}}', key=b"x" * 32),
        jwt(f'{{"exp":{NOW}}}', '{"alg":"none"}'),
        jwt(f'{{"exp":{NOW}}}', '{"alg":"HS512"}'),
        jwt(f'{{"exp":{NOW}}}', '{"alg":"hs256"}'),
        jwt(f'{{"exp":{NOW}}}', "[" * 5000),
        jwt(f'{{"exp":{NOW}}}', "nonsense"),
        jwt(f'{{"exp":{NOW}}}') + ".x",
        jwt(f'{{"exp":{NOW}}}').rpartition(".")[0] + ".",
        "..",
        "word",
    ],
    ids=range(10),
)
def test_a_malformed_or_badly_signed_token_is_invalid(secret_file: Path, token: str) -> None:
    assert SignedBearer.from_file(secret_file).check(f"Bearer {token}", now=NOW) == INVALID


def test_a_smaller_clock_skew_is_applied(secret_file: Path) -> None:
    auth = SignedBearer.from_file(secret_file, max_clock_skew_seconds=5)

    tokens = [jwt(f'{{"exp":{NOW - late}}}') for late in (5, 6)]
    verdicts = [auth.check(f"Bearer {token}", NOW) for token in tokens]

    assert verdicts == [None, "expired websocket jwt"]


def test_a_changed_file_has_no_effect_after_the_start(secret_file: Path) -> None:
    auth = CapabilityToken.from_file(secret_file)
    secret_file.write_text("changed")

    assert auth.check(f"Bearer {SECRET.decode()}") is None


def test_no_secret_shows_in_a_repr(secret_file: Path) -> None:
    auths: list[Auth] = [
        CapabilityToken.from_file(secret_file),
        SignedBearer.from_file(secret_file),
    ]

    assert [SECRET.decode() in repr(auth) for auth in auths] == [False, False]


def test_no_flags_mean_no_authentication() -> None:
    assert auth_from_flags(None) is None


def test_flags_select_the_authentication(secret_file: Path) -> None:
    digest = hashlib.sha256(b"s3cret").hexdigest()
    signed = auth_from_flags(
        "signed-bearer-token",
        shared_secret_file=secret_file,
        issuer="me",
        audience="you",
        max_clock_skew_seconds=0,
    )
    by_digest = auth_from_flags("capability-token", token_sha256=f" {digest} ")
    by_file = auth_from_flags("capability-token", token_file=secret_file)
    assert signed
    assert by_digest
    assert by_file

    late = jwt(f'{{"exp":{NOW - 1},"iss":"me","aud":"you"}}')
    assert signed.check(f"Bearer {late}", NOW) == "expired websocket jwt"
    assert by_digest.check("Bearer s3cret") is None
    assert by_file.check(f"Bearer {SECRET.decode()}") is None


DIGEST = "0" * 64
SIGNED_ONLY = (
    "`--ws-shared-secret-file`, `--ws-issuer`, `--ws-audience`, and "
    "`--ws-max-clock-skew-seconds` require `--ws-auth signed-bearer-token`"
)
TOKEN_ONLY = (
    "`--ws-token-file` and `--ws-token-sha256` require `--ws-auth capability-token`, "
    "not `signed-bearer-token`"
)
NO_TOKEN = (
    "`--ws-token-file` or `--ws-token-sha256` is required when `--ws-auth capability-token` is set"
)
NO_MODE = (
    "websocket auth flags require `--ws-auth capability-token` or `--ws-auth signed-bearer-token`"
)


def complaint_about(**flags: object) -> str:
    with pytest.raises(AuthConfigError) as caught:
        auth_from_flags(**flags)  # type: ignore[arg-type]  # the table below names real flags
    return str(caught.value)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {"mode": "capability-token"},
            NO_TOKEN,
        ),
        (
            {"mode": "capability-token", "token_file": "x", "token_sha256": DIGEST},
            "`--ws-token-file` and `--ws-token-sha256` are mutually exclusive",
        ),
        (
            {"mode": "capability-token", "token_sha256": "zz"},
            "--ws-token-sha256 must be a 64-character hex SHA-256 digest",
        ),
        ({"mode": None, "token_file": "x"}, NO_MODE),
        ({"mode": None, "max_clock_skew_seconds": 5}, NO_MODE),
        ({"mode": "capability-token", "token_file": "x", "issuer": "a"}, SIGNED_ONLY),
        ({"mode": "capability-token", "shared_secret_file": "x"}, SIGNED_ONLY),
        ({"mode": "signed-bearer-token", "token_file": "x"}, TOKEN_ONLY),
        ({"mode": "signed-bearer-token", "token_sha256": DIGEST}, TOKEN_ONLY),
        (
            {"mode": "signed-bearer-token"},
            "`--ws-shared-secret-file` is required when `--ws-auth signed-bearer-token` is set",
        ),
        (
            {
                "mode": "signed-bearer-token",
                "shared_secret_file": "x",
                "max_clock_skew_seconds": 2**64 - 1,
            },
            "websocket auth clock skew must fit in a signed 64-bit integer",
        ),
    ],
)
def test_flags_that_contradict_each_other_are_refused(
    flags: dict[str, object], message: str
) -> None:
    assert complaint_about(**flags) == message


def test_unusable_secret_files_are_named(tmp_path: Path) -> None:
    empty, short, missing = tmp_path / "empty", tmp_path / "short", tmp_path / "missing"
    empty.write_text(" \n")
    short.write_text("x" * 31)
    read = "failed to read websocket auth secret"

    complaints = [
        complaint_about(mode="capability-token", token_file=empty),
        complaint_about(mode="signed-bearer-token", shared_secret_file=short),
        complaint_about(mode="capability-token", token_file=missing),
        complaint_about(mode="capability-token", token_file=tmp_path),
    ]

    assert complaints == [
        f"websocket auth secret {empty} must not be empty",
        f"signed websocket bearer secret {short} must be at least 32 bytes",
        f"{read} {missing}: No such file or directory (os error 2)",
        f"{read} {tmp_path}: Is a directory (os error 21)",
    ]
