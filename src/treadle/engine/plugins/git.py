"""Fetches repositories of strangers with git, in a sandbox that may write one temporary folder.

That folder is in the home, where no command can change what is fetched. A repository decides what
git does with it: submodules, filters, hooks, links, sizes. Nothing of it is configuration here: it
is fetched into a bare repository, its size is checked, and its files are written without filters
and without running anything.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from treadle.engine.plugins.ids import BadPlugin
from treadle.engine.plugins.sources import GitSource, check_ref, git_url
from treadle.sandbox.backends.selection import SandboxUnavailable
from treadle.sandbox.policy import Confinement, WritableRoot
from treadle.support.files.folders import remove_folder
from treadle.support.files.programs import find_on_path
from treadle.support.files.writing import make_folders
from treadle.support.text.secrets import Secrets, secrets_of_headers
from treadle.support.text.urls import without_queries

if TYPE_CHECKING:
    from treadle.sandbox.process import Process
    from treadle.sandbox.sandbox import Sandbox
    from treadle.support.concurrency.workers import Workers

FETCH_SECONDS: Final = 120.0
END_SECONDS: Final = 5.0
"""How long a git that was killed may take to end."""

MAX_FETCHES: Final = 4
"""The maximum number of repositories that are fetched at a time."""

MAX_FETCHED: Final = 512 * 1024 * 1024
MAX_FILES: Final = 50_000
MAX_OUTPUT: Final = 16 * 1024 * 1024
MAX_ERRORS: Final = 4000
MAX_MESSAGE: Final = 1000
LEFT_SECONDS: Final = 3600.0
"""A temporary folder of this age was left by a server that was killed."""

_POLL_SECONDS: Final = 0.2
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SYSTEM: Final = ("/usr/bin", "/bin", "/usr/local/bin", "/opt/homebrew/bin")
# Credentials of the user, certificates and proxies; no GIT_* variables.
_KEPT: Final = """
    HOME TMPDIR SSH_AUTH_SOCK SSL_CERT_FILE SSL_CERT_DIR
    http_proxy https_proxy no_proxy all_proxy HTTPS_PROXY NO_PROXY ALL_PROXY
""".split()
_FIXED: Final = {
    "LC_ALL": "C",
    "GIT_ALLOW_PROTOCOL": "http:https:ssh",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=20",
    "GIT_TERMINAL_PROMPT": "0",
}
# Otherwise a repository could have its files written in another encoding, several times larger.
_ATTRIBUTES: Final = "* -text !eol !working-tree-encoding -ident -filter\n"
_ALONE: Final = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
"""Without the user's configuration, which may name filters."""

_OPTIONS: Final = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.askPass="),
    *("-c", "credential.interactive=false"),
    *("-c", "submodule.recurse=false"),
    *("-c", "fetch.fsckObjects=true"),
)


class FetchFailed(Exception):
    """The repository could not be fetched; the message has no secret."""


class GitFetcher:
    """Runs git for marketplaces and plugins."""

    def __init__(
        self,
        sandbox: Sandbox,
        workers: Workers,
        environ: Mapping[str, str],
        folder: Path,
        *,
        seconds: float = FETCH_SECONDS,
        limit: int = MAX_FETCHED,
    ) -> None:
        self.sandbox: Final = sandbox
        self.workers: Final = workers
        self.environ: Final = environ
        # The temporary folders are in it.
        self._folder = folder
        self._seconds = seconds
        self._free = asyncio.Semaphore(MAX_FETCHES)
        self.limit: Final = limit

    async def revision(self, source: GitSource) -> str:
        """Return the commit to which a branch, a tag or a commit leads now.

        Raises:
            FetchFailed: the repository does not answer, or has no such branch or tag.
        """
        url, environ, secrets = _checked(source)
        if source.ref is not None and _COMMIT.fullmatch(source.ref):
            return source.ref
        run = _Run(self, await self._temporary(), environ, secrets)
        try:
            async with self._free, asyncio.timeout(self._seconds):
                output = await run.git("ls-remote", "--quiet", "--", url, source.ref or "HEAD")
        except TimeoutError as error:
            raise FetchFailed(f"git ls-remote timed out after {self._seconds:g}s") from error
        finally:
            await self.workers.run(_remove, run.folder)
        found = output.split(None, 1)[0] if output.strip() else ""
        if not _COMMIT.fullmatch(found):
            raise FetchFailed(f"git ls-remote: no branch or tag {source.ref or 'HEAD'!r}")
        return found

    async def fetch(self, source: GitSource) -> Fetched:
        """Fetch the files of a repository into a temporary folder, which the caller removes.

        Raises:
            FetchFailed: the repository cannot be fetched, is too large, or takes too long.
        """
        url, environ, secrets = _checked(source)
        run = _Run(self, await self._temporary(), environ, secrets)
        try:
            async with self._free, asyncio.timeout(self._seconds):
                commit = await run.fetch(url, source.ref)
        except BaseException as error:
            await asyncio.shield(self.workers.run(_remove, run.folder))
            if isinstance(error, TimeoutError):
                raise FetchFailed(f"git fetch timed out after {self._seconds:g}s") from error
            raise
        return Fetched(run.folder, run.tree, commit, self.workers)

    async def _temporary(self) -> Path:
        try:
            return await self.workers.run(make_temporary, self._folder)
        except OSError as error:
            raise FetchFailed(f"no temporary folder: {error.strerror}") from error


class Fetched:
    """The files of a repository in a temporary folder, and their commit."""

    def __init__(self, folder: Path, tree: Path, commit: str, workers: Workers) -> None:
        self.tree: Final = tree
        self.commit: Final = commit
        self._folder = folder
        self._workers = workers

    async def remove(self) -> None:
        """Remove the temporary folder."""
        await asyncio.shield(self._workers.run(_remove, self._folder))


class _Run:
    """One use of git, with its temporary folder."""

    def __init__(
        self, fetcher: GitFetcher, folder: Path, environ: Mapping[str, str], secrets: Secrets
    ) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.tree = folder / "tree"
        self._fetcher = fetcher
        self._environ = environ
        self._secrets = secrets

    async def fetch(self, url: str, ref: str | None) -> str:
        await self.git("init", "--quiet", "--bare", "--", str(self.store), environ=_ALONE)
        await self._fetcher.workers.run(self._prepare)
        common = (
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-write-commit-graph",
        )
        try:
            await self.in_store(*common, "--depth=1", "--", url, ref or "HEAD")
            commit = await self._commit("FETCH_HEAD")
        except FetchFailed:
            if ref is None or not _COMMIT.fullmatch(ref):
                raise
            # Many servers hand out a commit only as a part of a branch or tag.
            all_refs = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
            await self.in_store(*common, "--", url, *all_refs)
            commit = await self._commit(ref)
        await self._check_size(commit)
        tree = f"--work-tree={self.tree}"
        await self.in_store(tree, "read-tree", commit, environ=_ALONE)
        await self.in_store(tree, "checkout-index", "--all", "--force", environ=_ALONE)
        return commit

    def _prepare(self) -> None:
        self.tree.mkdir()
        about = self.store / "info"
        about.mkdir(exist_ok=True)
        (about / "attributes").write_text(_ATTRIBUTES, "utf-8")

    async def _commit(self, name: str) -> str:
        output = await self.in_store("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        return output.strip()

    async def _check_size(self, commit: str) -> None:
        """Check what would be written: compressed, a small repository can contain anything."""
        output = await self.in_store("ls-tree", "-r", "-l", "-z", "--full-tree", commit)
        sizes = [entry.split(None, 4)[3] for entry in output.split("\0") if entry]
        total = sum(int(size) for size in sizes if size.isdigit())
        if len(sizes) > MAX_FILES or total > self._fetcher.limit:
            raise FetchFailed(
                f"the repository has {len(sizes)} files with {total} bytes: "
                f"expected at most {MAX_FILES} with {self._fetcher.limit}"
            )

    async def in_store(self, *arguments: str, environ: Mapping[str, str] | None = None) -> str:
        return await self.git(f"--git-dir={self.store}", *arguments, environ=environ)

    async def git(self, *arguments: str, environ: Mapping[str, str] | None = None) -> str:
        """Run git and return its output.

        Raises:
            FetchFailed: it fails, writes too much, or cannot run in a sandbox.
        """
        from treadle.sandbox import process as processes
        from treadle.sandbox.limits import default_limits

        outputs = {"stdout": bytearray(), "stderr": bytearray()}

        def keep(stream: str, data: bytes) -> None:
            # One byte more than allowed shows that there is more.
            limit = MAX_OUTPUT + 1 if stream == "stdout" else MAX_ERRORS
            outputs[stream].extend(data[: limit - len(outputs[stream])])

        fetcher = self._fetcher
        program = self._program()
        try:
            process = await processes.Process.start(
                fetcher.sandbox,
                [program, "--no-pager", *_OPTIONS, *arguments],
                cwd=str(self.folder),
                env=self._environment(environ or self._environ),
                confinement=Confinement((WritableRoot(str(self.folder)),), network=True),
                on_output=keep,
                limits=default_limits(),
            )
        except SandboxUnavailable as error:
            raise FetchFailed(f"git runs in a sandbox only: {error}") from error
        except OSError as error:
            raise FetchFailed(f"failed to run git: {error.strerror}") from error
        try:
            code = await self._wait(process)
        finally:
            process.kill()
            # A process that still writes would keep its folder from being removed.
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await process.wait()
        name = next(each for each in arguments if not each.startswith("-"))
        if code != 0:
            shown = self._reason(outputs["stderr"]) or f"exit code {code}"
            raise FetchFailed(f"git {name} failed: {shown}")
        if len(outputs["stdout"]) > MAX_OUTPUT:
            # A part of it would hide the rest: the sizes of some files would not count.
            raise FetchFailed(f"git {name} failed: it prints more than {MAX_OUTPUT} bytes")
        return outputs["stdout"].decode("utf-8", "replace")

    def _reason(self, errors: bytearray) -> str:
        """Return what git reports, which may quote what the server answered."""
        text = errors.decode("utf-8", "replace").strip()
        shown = self._secrets.redact(text, is_cut=len(errors) >= MAX_ERRORS)
        return without_queries(shown)[:MAX_MESSAGE]

    async def _wait(self, process: Process) -> int:
        """Wait for git, and stop it when it has written too much."""
        while True:
            try:
                async with asyncio.timeout(_POLL_SECONDS):
                    return await process.wait()
            except TimeoutError:
                size = await self._fetcher.workers.run(_size, self.store / "objects")
                if size > self._fetcher.limit:
                    limit = f"expected at most {self._fetcher.limit} bytes"
                    raise FetchFailed(f"the repository is too large: {limit}") from None

    def _program(self) -> str:
        searched = os.pathsep.join([*_SYSTEM, self._fetcher.environ.get("PATH", os.defpath)])
        program = find_on_path("git", searched)
        if program is None:
            raise FetchFailed("git is not installed")
        return program

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        environ = self._fetcher.environ
        kept = {name: environ[name] for name in _KEPT if name in environ}
        path = environ.get("PATH", os.defpath).split(os.pathsep)
        folders = dict.fromkeys([*_SYSTEM, *(each for each in path if each.startswith("/"))])
        return {**kept, **_FIXED, **more, "PATH": os.pathsep.join(folders)}


def _checked(source: GitSource) -> tuple[str, Mapping[str, str], Secrets]:
    """Return the URL without its password, and variables for git with it, which are secret.

    Arguments of programs are visible to every user of the machine.
    """
    url = git_url(source.url)
    if url is None:
        raise FetchFailed("not the URL of a git repository")
    if source.ref is not None:
        try:
            check_ref(source.ref)
        except BadPlugin as error:
            raise FetchFailed(str(error)) from error
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return url, {}, Secrets()
    user, _, host = parts.netloc.rpartition("@")
    login = unquote(user if ":" in user else f"{user}:")
    header = f"Basic {b64encode(login.encode()).decode()}"
    plain = parts._replace(netloc=host).geturl()
    # A redirect would carry the header to another host.
    entries = [
        (f"http.{parts.scheme}://{host}/.extraHeader", f"Authorization: {header}"),
        ("http.followRedirects", "false"),
    ]
    # Without a password, the name is one.
    secrets = Secrets([login, login.removesuffix(":"), login.partition(":")[2]])
    secrets.add(secrets_of_headers({"authorization": header}))
    return plain, _as_variables(entries), secrets


def _as_variables(entries: Sequence[tuple[str, str]]) -> dict[str, str]:
    variables = {"GIT_CONFIG_COUNT": str(len(entries))}
    for at, (key, value) in enumerate(entries):
        variables |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    return variables


def _size(folder: Path) -> int:
    """Return the size of the files below a folder; git makes few levels."""
    total, waiting = 0, [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # removed meanwhile
    return total


def make_temporary(parent: Path) -> Path:
    """Make a folder, and remove those that servers left which were killed."""
    make_folders(parent)
    with os.scandir(parent) as entries:
        left = [
            Path(entry.path)
            for entry in entries
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > LEFT_SECONDS
        ]
    for folder in left:
        _remove(folder)
    return Path(os.path.realpath(tempfile.mkdtemp(prefix="git-", dir=parent)))


def _remove(folder: Path) -> None:
    with suppress(OSError):  # the system removes temporary files some time
        remove_folder(folder)
