"""The file with the logins of MCP servers: private, and none of them costs another."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from treadle.engine.mcp.tokens import MAX_LOGIN_BYTES, McpLogin, TokenFile
from treadle.support.files.reading import FileTooLarge


def test_a_login_belongs_to_one_name_and_address(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path)
    login = McpLogin(access_token="t", refresh_token="r", expires_at=100.0)
    tokens.set("web", "http://a", login)
    tokens.set("web", "http://b", McpLogin(access_token="u"))

    assert tokens.get("web", "http://a") == login
    assert tokens.get("web", "http://c") is None
    assert (login.is_stale(60.0), login.is_stale(80.0)) == (False, True)
    assert stat.S_IMODE((tmp_path / "mcp_logins.json").stat().st_mode) == 0o600
    assert "t" not in repr(login).removeprefix("Login")
    tokens.set("web", "http://a", None)
    assert tokens.get("web", "http://a") is None


def test_a_damaged_login_file_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / "mcp_logins.json").write_text("{]", "utf-8")
    assert TokenFile(tmp_path).get("web", "http://a") is None


def test_a_login_that_cannot_be_read_neither_hides_others_nor_gets_lost(tmp_path: Path) -> None:
    """It may come from another version."""
    file = tmp_path / "mcp_logins.json"
    file.write_text('{"web|http://a": {"access_token": 7}}', "utf-8")
    tokens = TokenFile(tmp_path)
    tokens.set("web", "http://b", McpLogin(access_token="u"))

    assert tokens.get("web", "http://a") is None
    assert tokens.get("web", "http://b") == McpLogin(access_token="u")
    assert json.loads(file.read_text("utf-8"))["web|http://a"] == {"access_token": 7}


def test_a_damaged_login_file_is_kept_under_another_name(tmp_path: Path) -> None:
    (tmp_path / "mcp_logins.json").write_text("{]", "utf-8")
    TokenFile(tmp_path).set("web", "http://a", McpLogin(access_token="t"))

    assert TokenFile(tmp_path).get("web", "http://a") == McpLogin(access_token="t")
    assert (tmp_path / "mcp_logins.damaged").read_text("utf-8") == "{]"


def test_logins_that_cannot_be_read_are_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = TokenFile(tmp_path)
    tokens.set("web", "http://a", McpLogin(access_token="t"))

    def refuse(*_arguments: object) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr("treadle.engine.mcp.tokens.read_regular", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            tokens.set("web", "http://b", McpLogin(access_token="u"))

    assert tokens.get("web", "http://a") == McpLogin(access_token="t")


def test_no_login_fills_the_file_of_all_logins(tmp_path: Path) -> None:
    """A server decides how long its tokens are; a file over the limit would hide all logins."""
    tokens = TokenFile(tmp_path)
    tokens.set("web", "http://a", McpLogin(access_token="t"))
    with pytest.raises(OSError, match=f"more than {MAX_LOGIN_BYTES} bytes"):
        tokens.set("web", "http://b", McpLogin(access_token="u" * MAX_LOGIN_BYTES))

    assert tokens.get("web", "http://a") == McpLogin(access_token="t")


def test_a_login_that_does_not_fit_into_the_file_leaves_it_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "mcp_logins.json"
    file.write_text(json.dumps({"web|http://a": {"access_token": "x" * 4_194_200}}), "utf-8")
    before = file.read_bytes()
    with pytest.raises(FileTooLarge):
        TokenFile(tmp_path).set("web", "http://b", McpLogin(access_token="u"))

    assert file.read_bytes() == before
