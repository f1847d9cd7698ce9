"""Where a login is stored: a file, the keyring of the system, either of them, or memory."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError

from tests.accounts.ground import CHATGPT, Ground
from treadle.accounts import stores
from treadle.protocol.base import JsonValue

START = "account/login/start"
KEY = {"type": "apiKey", "apiKey": "sk-of-the-user"}
STORED = {"auth_mode": "apikey", "OPENAI_API_KEY": "sk-of-the-user"}


class Memory(KeyringBackend):
    """A keyring of this process, which can be locked or hang."""

    priority = 1.0

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # of the library
        self.entries: dict[tuple[str, str], str] = {}
        self.is_locked = False
        self.gate = threading.Event()
        self.gate.set()

    def _open(self) -> None:
        self.gate.wait(20)
        if self.is_locked:
            raise KeyringLocked("the secret sk-of-the-user stays out of errors")

    def get_password(self, service: str, username: str) -> str | None:
        """Return an entry."""
        self._open()
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        """Replace an entry."""
        self._open()
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        """Remove an entry."""
        self._open()
        if (service, username) not in self.entries:
            raise PasswordDeleteError
        del self.entries[service, username]


@pytest.fixture
def memory() -> Iterator[Memory]:
    """The keyring in force."""
    before = keyring.get_keyring()
    backend = Memory()
    keyring.set_keyring(backend)
    try:
        yield backend
    finally:
        backend.gate.set()
        keyring.set_keyring(before)


def use(ground: Ground, mode: str) -> None:
    ground.configure(f'cli_auth_credentials_store = "{mode}"\n')


def entry_of(home: Path) -> tuple[str, str]:
    """Return the names under which Codex looks for the login of a home."""
    digest = hashlib.sha256(str(home.resolve()).encode()).hexdigest()
    return "Codex Auth", f"cli|{digest[:16]}"


@pytest.mark.parametrize("mode", ["keyring", "auto"])
async def test_a_login_is_kept_in_the_keyring(ground: Ground, memory: Memory, mode: str) -> None:
    """Upstream: the names and the content of the entry; a file of an earlier login is removed."""
    use(ground, "file")
    ground.store({"OPENAI_API_KEY": "sk-before"})
    use(ground, mode)
    client = await ground.client()

    await client.request(START, KEY)

    assert json.loads(memory.entries[entry_of(ground.home)]) == STORED
    assert not ground.file.exists()
    assert (await client.request("account/read", {}))["account"] == {"type": "apiKey"}
    another = await ground.client()
    assert (await another.request("account/read", {}))["account"] == {"type": "apiKey"}

    await client.request("account/logout", None)
    assert memory.entries == {}
    assert (await client.request("account/read", {}))["account"] is None
    assert await client.request("account/logout", None) == {}


async def test_renewed_tokens_return_to_the_keyring(ground: Ground, memory: Memory) -> None:
    use(ground, "keyring")
    entry = entry_of(ground.home)
    old = ground.service.auth_json()
    memory.entries[entry] = json.dumps(old)
    client = await ground.client()

    account = await client.request("account/read", {"refreshToken": True})

    assert account["account"] == CHATGPT
    new = json.loads(memory.entries[entry])
    assert new["tokens"]["refresh_token"] != old["tokens"]["refresh_token"]
    assert ground.service.refresh_tokens[new["tokens"]["refresh_token"]]
    assert not ground.file.exists()


async def test_tokens_that_another_program_has_put_there_are_used(
    ground: Ground, memory: Memory
) -> None:
    """The keyring does not say when it changes: it is read again before a renewal."""
    use(ground, "keyring")
    entry = entry_of(ground.home)
    memory.entries[entry] = json.dumps(ground.service.auth_json())
    client = await ground.client()
    await client.request("account/read", {})
    new = ground.service.auth_json()
    memory.entries[entry] = json.dumps(new)

    await client.request("account/read", {"refreshToken": True})
    status = await client.request("getAuthStatus", {"includeToken": True})

    assert status["authToken"] == new["tokens"]["access_token"]
    assert ground.service.bodies("/oauth/token") == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"auth_mode": "chatgpt"}', "x" * 2_000_000])
async def test_a_damaged_entry_is_not_a_login(ground: Ground, memory: Memory, content: str) -> None:
    use(ground, "keyring")
    memory.entries[entry_of(ground.home)] = content

    assert (await (await ground.client()).request("account/read", {}))["account"] is None


async def test_without_the_library_a_login_is_refused_with_the_remedy(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(ground, "keyring")
    monkeypatch.setitem(sys.modules, "keyring", None)
    client = await ground.client()

    assert (await client.request("account/read", {}))["account"] is None
    refused = await client.refusal(START, KEY)

    assert refused.message == (
        "failed to save the API key: the library `keyring` is not installed (extra `keyring`)"
    )
    assert not ground.file.exists()


async def test_a_locked_keyring_refuses_without_quoting_the_secret(
    ground: Ground, memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    use(ground, "keyring")
    memory.is_locked = True
    client = await ground.client()

    refused = await client.refusal(START, KEY)
    logout = await client.refusal("account/logout", None)

    reason = "the keyring cannot be used: KeyringLocked"
    assert refused.message == f"failed to save the API key: {reason}"
    assert logout.message == f"logout failed: {reason}"
    assert not ground.file.exists()
    assert [each for each in caplog.records if "sk-of-the-user" in str(each.__dict__)] == []


async def test_a_keyring_that_hangs_delays_a_request_only_so_long(
    ground: Ground, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(ground, "keyring")
    monkeypatch.setattr(stores, "KEYRING_SECONDS", 0.05)
    client = await ground.client()
    memory.gate.clear()

    refused = await client.refusal(START, KEY)

    assert refused.message == (
        "failed to save the API key: the keyring did not answer within 0.05 s"
    )


@pytest.mark.parametrize("fault", ["missing", "locked"])
async def test_auto_uses_the_file_where_there_is_no_keyring(
    ground: Ground, memory: Memory, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Upstream: a warning, then the file."""
    use(ground, "auto")
    memory.is_locked = fault == "locked"
    if fault == "missing":
        monkeypatch.setitem(sys.modules, "keyring", None)
    client = await ground.client()

    await client.request(START, KEY)

    assert ground.stored() == STORED
    assert memory.entries == {}
    assert (await client.request("account/read", {}))["account"] == {"type": "apiKey"}
    await client.request("account/logout", None)
    assert not ground.file.exists()


async def test_auto_prefers_the_keyring(ground: Ground, memory: Memory) -> None:
    """Upstream: the file counts if the keyring has no entry."""
    use(ground, "auto")
    ground.store(ground.service.auth_json())
    client = await ground.client()
    assert (await client.request("account/read", {}))["account"] == CHATGPT

    memory.entries[entry_of(ground.home)] = json.dumps(STORED)
    another = await ground.client()
    assert (await another.request("account/read", {}))["account"] == {"type": "apiKey"}


async def test_an_ephemeral_login_ends_with_the_server(ground: Ground) -> None:
    """Upstream: neither read from a file nor written to one."""
    use(ground, "ephemeral")
    ground.store({"OPENAI_API_KEY": "sk-in-a-file"})
    client = await ground.client()
    assert (await client.request("account/read", {}))["account"] is None

    await client.request(START, KEY)
    assert (await client.request("account/read", {}))["account"] == {"type": "apiKey"}
    assert ground.stored() == {"OPENAI_API_KEY": "sk-in-a-file"}

    another = await ground.client()
    assert (await another.request("account/read", {}))["account"] is None


async def test_the_store_follows_the_configuration(ground: Ground, memory: Memory) -> None:
    client = await ground.client()
    await client.request(START, KEY)
    assert ground.stored() == STORED

    use(ground, "keyring")
    assert (await client.request("account/read", {}))["account"] is None
    use(ground, "file")
    assert (await client.request("account/read", {}))["account"] == {"type": "apiKey"}
    assert memory.entries == {}


@pytest.mark.parametrize("value", ['"cloud"', "5", "true"])
async def test_an_unknown_store_is_reported_and_changes_nothing(
    ground: Ground, value: JsonValue
) -> None:
    """While the file is invalid, the last valid settings count: no login moves by an accident."""
    client = await ground.client()
    await client.request(START, KEY)
    ground.configure(f"cli_auth_credentials_store = {value}\n")

    refused = await client.refusal("config/read", {})

    assert "cli_auth_credentials_store" in refused.message
    assert (await client.request("getAuthStatus", {}))["authMethod"] == "apikey"
    assert ground.stored() == STORED


async def test_a_project_cannot_change_how_logins_are_stored(ground: Ground) -> None:
    """A repository could otherwise direct tokens to itself, or log the user out."""
    project = ground.home.parent / "project"
    (project / ".codex").mkdir(parents=True)
    (project / ".git").mkdir()
    hostile = (
        'cli_auth_credentials_store = "ephemeral"\nforced_login_method = "api"\n'
        'chatgpt_base_url = "http://127.0.0.1:9/"\n'
    )
    (project / ".codex" / "config.toml").write_text(hostile, "utf-8")
    path = ground.home / "config.toml"
    trust = f'[projects."{project}"]\ntrust_level = "trusted"\n'
    path.write_text(path.read_text("utf-8") + trust, "utf-8")
    ground.store(ground.service.auth_json())
    client = await ground.client()
    thread_id = await client.start(cwd=str(project))

    end = (await client.run(thread_id))[-1]

    assert end["params"]["turn"]["status"] == "completed"
    assert (await client.request("account/read", {}))["account"] == CHATGPT
    await client.request("account/rateLimits/read", None)


async def test_a_disk_that_fails_for_a_moment_does_not_log_out(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is read once until it changes: the login would be missing for as long."""
    client = await ground.client()
    ground.store(STORED)

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(stores, "read_regular", broken)
        refused = await client.refusal("account/read", {})
    answer = await client.request("account/read", {})

    assert refused.kind == "io"
    assert answer["account"] == {"type": "apiKey"}
