"""The command line: the options and exit codes of upstream."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import treadle
from tests.harness.processes import TREADLE, environment, listening

HELLO = b'{"id":0,"method":"initialize","params":{"clientInfo":{"name":"x","version":"1"}}}\n'
HINT = "\n\nFor more information, try '--help'.\n"
WS = ("--listen", "ws://127.0.0.1:0")
EXPECTED = "expected `stdio://`, `unix://`, `unix://PATH`, `ws://IP:PORT`, or `off`"


def run(home: Path, *arguments: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [TREADLE, *arguments],
        input=text,
        env=environment(home),
        cwd=home,
        capture_output=True,
        timeout=20,
        check=False,
    )


def answers(home: Path, *arguments: str) -> bool:
    """Return whether a server started with these arguments completes the handshake and exits."""
    done = run(home, *arguments, text=HELLO)
    return (done.returncode, done.stderr) == (0, b"") and b'"userAgent"' in done.stdout


def test_version_is_printed(home: Path) -> None:
    done = run(home, "--version")
    assert (done.returncode, done.stdout.decode()) == (0, f"treadle {treadle.__version__}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nope"],
        ["nope"],
        ["app-server", "--nope"],
        ["app-server", "--lis", "off"],
        ["app-server", "--listen"],
        ["app-server", "--listen", "off", "--stdio"],
        ["app-server", *WS, "--ws-auth", "nope"],
        ["app-server", *WS, "--ws-max-clock-skew-seconds", "soon"],
        ["app-server", "generate-ts"],
    ],
)
def test_arguments_that_cannot_be_parsed_are_exit_code_2(home: Path, arguments: list[str]) -> None:
    done = run(home, *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"usage: treadle" in done.stderr
    assert b"Traceback" not in done.stderr


def test_no_command_prints_the_commands(home: Path) -> None:
    done = run(home)
    assert done.returncode == 2
    assert b"app-server" in done.stdout


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ws://localhost:0", "invalid websocket --listen URL `{url}`; expected `ws://IP:PORT`"),
        ("ws://127.0.0.1", "invalid websocket --listen URL `{url}`; expected `ws://IP:PORT`"),
        ("ws://127.0.0.1:65536", "invalid websocket --listen URL `{url}`; expected `ws://IP:PORT`"),
        ("ws://127.0.0.1:0/x", "invalid websocket --listen URL `{url}`; expected `ws://IP:PORT`"),
        ("http://x", "unsupported --listen URL `{url}`; " + EXPECTED),
        ("wss://127.0.0.1:0", "unsupported --listen URL `{url}`; " + EXPECTED),
        ("nope", "unsupported --listen URL `{url}`; " + EXPECTED),
        ("", "unsupported --listen URL `{url}`; " + EXPECTED),
    ],
)
def test_an_invalid_address_is_refused(home: Path, url: str, reason: str) -> None:
    done = run(home, "app-server", "--listen", url)
    message = f"error: invalid value '{url}' for '--listen <URL>': {reason.format(url=url)}{HINT}"
    assert (done.returncode, done.stdout, done.stderr.decode()) == (2, b"", message)


NEEDS_TOKEN = (
    "`--ws-token-file` or `--ws-token-sha256` is required when `--ws-auth capability-token` is set"
)
NEEDS_AUTH = (
    "websocket auth flags require `--ws-auth capability-token` or `--ws-auth signed-bearer-token`"
)
SIGNED_ONLY = (
    "`--ws-shared-secret-file`, `--ws-issuer`, `--ws-audience`, and "
    "`--ws-max-clock-skew-seconds` require `--ws-auth signed-bearer-token`"
)
TOKEN_ONLY = (
    "`--ws-token-file` and `--ws-token-sha256` require "
    "`--ws-auth capability-token`, not `signed-bearer-token`"
)
NO_FILE = "failed to read websocket auth secret {home}/none: No such file or directory (os error 2)"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--ws-auth capability-token", NEEDS_TOKEN),
        ("--ws-auth capability-token --ws-token-file none", NO_FILE),
        (
            "--ws-auth capability-token --ws-token-file empty",
            "websocket auth secret {home}/empty must not be empty",
        ),
        (
            "--ws-auth capability-token --ws-token-file token --ws-token-sha256 00",
            "`--ws-token-file` and `--ws-token-sha256` are mutually exclusive",
        ),
        (
            "--ws-auth capability-token --ws-token-sha256 zz",
            "--ws-token-sha256 must be a 64-character hex SHA-256 digest",
        ),
        ("--ws-token-file token", NEEDS_AUTH),
        ("--ws-issuer x", NEEDS_AUTH),
        ("--ws-auth capability-token --ws-token-file token --ws-issuer x", SIGNED_ONLY),
        (
            "--ws-auth signed-bearer-token",
            "`--ws-shared-secret-file` is required when `--ws-auth signed-bearer-token` is set",
        ),
        (
            "--ws-auth signed-bearer-token --ws-shared-secret-file token",
            "signed websocket bearer secret {home}/token must be at least 32 bytes",
        ),
        (
            "--ws-auth signed-bearer-token --ws-token-file token",
            TOKEN_ONLY,
        ),
    ],
)
def test_auth_flags_that_do_not_fit_together_are_refused(
    home: Path, flags: str, message: str
) -> None:
    (home / "empty").write_text("\n")
    (home / "token").write_text("swordfish")
    done = run(home, "app-server", *WS, *flags.split())
    expected = f"Error: {message.format(home=home)}\n"
    assert (done.returncode, done.stdout, done.stderr.decode()) == (1, b"", expected)


def test_listening_beyond_loopback_requires_authentication(home: Path) -> None:
    done = run(home, "app-server", "--listen", "ws://0.0.0.0:4567")
    assert done.returncode == 1
    assert done.stderr.decode() == (
        "Error: refusing to start non-loopback websocket listener 0.0.0.0:4567 without auth; "
        "configure `--ws-auth capability-token` or `--ws-auth signed-bearer-token`\n"
    )


def test_auth_flags_have_no_effect_on_stdio(home: Path) -> None:
    (home / "token").write_text("swordfish")
    flags = ("--ws-auth", "capability-token", "--ws-token-file", "token")
    assert answers(home, "app-server", *flags)


def test_a_second_server_on_the_same_socket_is_refused(home: Path, short_folder: Path) -> None:
    path = short_folder / "s"
    with listening(home / "first", "--listen", f"unix://{path}") as server:
        server.socket_path(path)
        done = run(home, "app-server", "--listen", f"unix://{path}")
        assert server.stop() == 0
    message = f"Error: app-server control socket is already in use at {path}\n"
    assert (done.returncode, done.stderr.decode()) == (1, message)


def test_the_control_socket_has_its_own_place_in_the_home(short_folder: Path) -> None:
    path = short_folder / "app-server-control" / "app-server-control.sock"
    with listening(short_folder, "--listen", "unix://") as server:
        assert server.socket_path(path).stat().st_mode & 0o777 == 0o600
        assert server.stop() == 0
    assert not path.exists()


def test_the_banner_shows_the_address_of_the_server(home: Path) -> None:
    with listening(home, "--listen", "ws://[::1]:0") as server:
        url = server.websocket_url()
        assert server.stop() == 0
    http = url.replace("ws:", "http:")
    assert server.stderr == (
        "treadle app-server (WebSockets)\n"
        f"  listening on: {url}\n"
        f"  readyz: {http}/readyz\n"
        f"  healthz: {http}/healthz\n"
        "  note: binds localhost only (use SSH port-forwarding for remote access)\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        "app-server",
        "app-server --stdio",
        "app-server --listen stdio://",
        "app-server --listen=stdio://",
        "-c model=x app-server",
        "app-server -c model=x",
        "-c model=x app-server -c model_provider=y -c a.b.c=[1,2]",
        "app-server --config model=x --enable a --disable b",
        "--enable a --disable b app-server",
        "app-server --strict-config",
        "app-server --analytics-default-enabled",
    ],
)
def test_every_spelling_of_stdio_works(home: Path, arguments: str) -> None:
    assert answers(home, *arguments.split())


def test_an_override_without_a_value_is_refused(home: Path) -> None:
    done = run(home, "app-server", "-c", "model")
    assert done.returncode == 1
    assert b"model" in done.stderr
    assert b"Traceback" not in done.stderr


def test_unknown_settings_are_refused_in_strict_mode(home: Path) -> None:
    (home / "config.toml").write_text('model = "x"\nmodle = "y"\n')
    assert answers(home, "app-server")
    done = run(home, "app-server", "--strict-config", text=HELLO)
    assert (done.returncode, done.stdout) == (1, b"")
    assert "`modle`" in done.stderr.decode()


def test_a_configuration_that_is_not_toml_does_not_prevent_the_start(home: Path) -> None:
    """As upstream: the defaults are used."""
    (home / "config.toml").write_text("model = \n")
    done = run(home, "app-server", text=HELLO)
    assert done.returncode == 0
    assert b'"userAgent"' in done.stdout
    assert b"Traceback" not in done.stderr


def test_a_configuration_that_is_not_toml_is_refused_in_strict_mode(home: Path) -> None:
    (home / "config.toml").write_text("model = \n")
    done = run(home, "app-server", "--strict-config", text=HELLO)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().startswith("Error: ")
    assert str(home / "config.toml") in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_a_port_in_use_is_reported(home: Path) -> None:
    with listening(home / "first", *WS) as server:
        url = server.websocket_url()
        done = run(home, "app-server", "--listen", url)
        assert server.stop() == 0
    assert done.returncode == 1
    assert b"Address already in use" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["generate-ts", "generate-json-schema"])
def test_the_protocol_is_written_to_a_new_folder(home: Path, kind: str) -> None:
    plain, experimental = home / "new" / "plain", home / "new" / "experimental"
    for folder, flags in ((plain, []), (experimental, ["--experimental"])):
        done = run(home, "app-server", kind, "--out", str(folder), *flags)
        assert (done.returncode, done.stderr) == (0, b"")
    suffix = ".ts" if kind == "generate-ts" else ".json"
    files = {path.relative_to(plain) for path in plain.rglob(f"*{suffix}")}
    more = {path.relative_to(experimental) for path in experimental.rglob(f"*{suffix}")}
    assert Path(f"v2/ThreadStartParams{suffix}") in files
    assert files < more


def test_a_folder_that_cannot_be_written_is_reported(home: Path) -> None:
    (home / "file").write_text("")
    done = run(home, "app-server", "generate-ts", "--out", str(home / "file"))
    assert done.returncode == 1
    assert done.stderr.decode().startswith(f"Error: cannot write to {home / 'file'}")
