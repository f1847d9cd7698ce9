"""Plugins and marketplaces to install from, and a server of git repositories over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.harness.mcp import PLAIN
from tests.harness.repositories import git
from treadle.protocol.base import JsonValue

MARKETPLACE = ".agents/plugins/marketplace.json"
MANIFEST = ".codex-plugin/plugin.json"


def write_json(path: Path, value: JsonValue) -> Path:
    """Write a file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return path


def write_plugin(folder: Path, manifest: JsonValue = None, **files: JsonValue) -> Path:
    """Write a plugin, by default with a minimal manifest."""
    write_json(folder / MANIFEST, {"name": folder.name} if manifest is None else manifest)
    for name, content in files.items():
        write_json(folder / name, content)
    return folder


def write_skill(folder: Path, metadata: str | None = None) -> Path:
    """Write a skill, and return its file."""
    path = folder / "SKILL.md"
    text = f"---\nname: {folder.name}\ndescription: Does it\n---\n# How\n"
    write_json(path, text)
    if metadata is not None:
        write_json(folder / "agents" / "openai.yaml", metadata)
    return path


def write_marketplace(root: Path, entries: Sequence[JsonValue], name: str = "shop") -> Path:
    """Write a marketplace; an entry that is only a name is a plugin in `plugins/`."""
    plugins = [
        {"name": each, "source": f"./plugins/{each}"} if isinstance(each, str) else each
        for each in entries
    ]
    return write_json(root / MARKETPLACE, {"name": name, "plugins": plugins})


SAMPLE = {
    "name": "sample",
    "version": "1.2.0",
    "description": "A sample",
    "keywords": ["one", "two"],
    "skills": "./skills/",
    "mcpServers": "./.mcp.json",
    "apps": "./.app.json",
    "hooks": "./hooks/hooks.json",
    "interface": {
        "displayName": "Sample Plugin",
        "shortDescription": "Short",
        "longDescription": "Long",
        "developerName": "Dev",
        "category": "Productivity",
        "capabilities": ["Interactive", "Write"],
        "websiteURL": "https://example.com",
        "privacyPolicyURL": "https://example.com/privacy",
        "termsOfServiceURL": "https://example.com/terms",
        "defaultPrompt": ["Do   it", 5, " "],
        "brandColor": "#10A37F",
        "composerIcon": "./assets/icon.png",
        "logo": "./assets/logo.png",
        "logoDark": "../outside.png",
        "screenshots": ["./assets/one.png", "/etc/two.png"],
    },
}
METADATA = """\
interface:
  display_name: Greeter
  icon_small: ./assets/small.svg
  icon_large: ../../assets/icon.png
"""
HOOKS = {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "true"}]}]}}


def write_sample(root: Path, *, server: JsonValue = None) -> Path:
    """Write a marketplace with one plugin that has every part, and return its file."""
    folder = write_plugin(root / "plugins" / "sample", SAMPLE)
    write_skill(folder / "skills" / "greet", METADATA)
    table = {"type": "stdio", "command": "python3", "args": PLAIN, "cwd": "."}
    write_json(folder / ".mcp.json", {"mcpServers": {"helper": server or table}})
    write_json(folder / ".app.json", {"apps": {"mail": {"id": "connector_mail"}}})
    write_json(folder / "hooks" / "hooks.json", HOOKS)
    (folder / "assets").mkdir()
    return write_marketplace(root, ["sample"])


def commit_all(folder: Path, message: str = "change") -> str:
    """Commit everything in a folder, a repository from now on, and return the commit."""
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


class _GitHandler(BaseHTTPRequestHandler):
    """Answers with `git http-backend`, which comes with git."""

    root: Path
    authorization: str | None = None
    seen: list[str | None]

    def log_message(self, *args: object) -> None:
        """Log nothing."""

    def _answer(self) -> None:
        self.seen.append(self.headers.get("authorization"))
        if self.authorization not in (None, self.headers.get("authorization")):
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        environ = os.environ | {
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "GIT_PROTOCOL": self.headers.get("git-protocol", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
        }
        command = ["git", "-c", "safe.directory=*", "http-backend"]
        done = subprocess.run(command, input=body, env=environ, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = [line.decode().partition(": ")[::2] for line in head.split(b"\r\n") if line]
        status = next((value for name, value in fields if name == "Status"), "200")
        self.send_response(int(status.split()[0]))
        for name, value in fields:
            if name != "Status":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _answer  # noqa: N815 - names of the standard library


@contextmanager
def git_server(
    root: Path, *, authorization: str | None = None
) -> Iterator[tuple[str, list[str | None]]]:
    """Serve the repositories in a folder; yields the address and the credentials that came."""
    seen: list[str | None] = []
    fields = {"root": root, "authorization": authorization, "seen": seen}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_GitHandler,), fields))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
