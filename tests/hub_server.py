"""The Hugging Face hub's API and a plain file server on the loopback, as far as huggingface_hub asks them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import torch
from huggingface_hub import constants

TOKENS = {"hf_write": "write", "hf_read": "read"}


@dataclass
class Repository:
    """A model: the files of each commit, and the commits that branches and tags name."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    is_gated: bool = False
    is_private: bool = False


@dataclass
class Hub:
    """What the server has, and what it was asked."""

    url: str = ""
    models: dict[str, Repository] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    """Plain files, below /files/."""
    requests: list[str] = field(default_factory=list)
    cards: list[str] = field(default_factory=list)
    """Cards whose metadata were to be validated."""
    breaks: int = 0
    """Downloads of weights that are to end too early, from now on."""

    def add(self, name: str, content: Path | Mapping[str, bytes], *refs: str, **flags: bool) -> str:
        """A commit with the files of a folder, which `refs` (main) name from now on."""
        if isinstance(content, Path):
            paths = [path for path in content.rglob("*") if path.is_file()]
            content = {path.relative_to(content).as_posix(): path.read_bytes() for path in paths}
        repository = self.models.setdefault(name, Repository(**flags))
        text = "".join(f"{path} {hashlib.sha256(data).hexdigest()}\n" for path, data in sorted(content.items()))
        commit = hashlib.sha1(f"{name}\n{text}".encode()).hexdigest()
        repository.commits[commit] = dict(content)
        repository.refs |= dict.fromkeys(refs or ("main",), commit)
        return commit

    def environment(self, home: Path, **more: str) -> dict[str, str]:
        """The environment of a process that asks this server and has its caches below `home`."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        own = {"HF_ENDPOINT": self.url, "HF_HOME": str(home / "hf"), "TORCH_HOME": str(home / "torch")}
        return {**kept, **own, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", **more}


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A server of its own."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    @property
    def role(self) -> str | None:
        return TOKENS.get(self.headers.get("Authorization", "").removeprefix("Bearer "))

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        length = int(self.headers.get("Content-Length") or 0)
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(length)
        for pattern, answer in (
            (r"/files/(.+)", self._file),
            (r"/cdn/(\w+)/(.+)", self._cdn),
            (r"/api/whoami-v2()", self._whoami),
            (r"/api/validate-yaml()", lambda _: self._validate(body)),
            (r"/api/repos/create()", lambda _: self._create(json.loads(body))),
            (r"/api/models/([^/]+/[^/]+)/branch/(.+)", self._branch),
            (r"/api/models/([^/]+/[^/]+)/preupload/(.+)", lambda *names: self._preupload(json.loads(body), *names)),
            (r"/api/models/([^/]+/[^/]+)/commit/(.+)", lambda *names: self._commit(body, *names)),
            (r"/api/\w+/([^/]+/[^/]+)/revision/(.+)", self._revision),
            (r"/api/\w+/([^/]+/[^/]+)/tree/([^/]+)/?(.*)", self._tree),
            (r"/api/datasets/([^/]+/[^/]+)/paths-info/([^/]+)", lambda *names: self._paths(body, *names)),
            (r"/api/\w+/([^/]+/[^/]+)", lambda name: self._revision(name, "main")),
            (r"/(?:datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self._resolve),
        ):
            if found := re.fullmatch(pattern, path):
                answer(*found.groups())
                return
        self._send(404, {"error": f"no such call: {path}"})

    def _send(self, status: int, content: Any = None, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _refuse(self, status: int, code: str, message: str) -> None:
        named = {"X_Error_Code": code} if code else {}
        self._send(status, {"error": message}, X_Error_Message=message, **named)

    def _found(self, name: str) -> Repository | None:
        """The repository, or an answer as the hub gives it to one who may not know whether there is one."""
        repository = self.hub.models.get(name)
        if repository is not None and not (repository.is_private and self.role is None):
            return repository
        if self.headers.get("Authorization") and self.role is None:
            self._refuse(401, "", "Invalid credentials in Authorization header")
        elif self.role is None:
            self._refuse(401, "", "Invalid username or password.")
        else:
            self._refuse(404, "RepoNotFound", "Repository not found")
        return None

    def _commit_of(self, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        repository = self._found(name)
        if repository is None:
            return None
        commit = repository.refs.get(revision, revision)
        if commit not in repository.commits:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return None
        return commit, repository.commits[commit]

    def _revision(self, name: str, revision: str) -> None:
        if found := self._commit_of(name, revision):
            commit, files = found
            siblings = [{"rfilename": path} for path in files]
            about = {"id": name, "modelId": name, "tags": [], "private": self.hub.models[name].is_private}
            self._send(200, {**about, "sha": commit, "siblings": siblings})

    def _tree(self, name: str, revision: str, folder: str) -> None:
        if found := self._commit_of(name, revision):
            inside = {path: data for path, data in found[1].items() if not folder or path.startswith(f"{folder}/")}
            above = {str(up) for path in inside for up in PurePosixPath(path).parents} - {".", folder}
            entries = [self._entry(path, data) for path, data in inside.items()]
            entries += [{"type": "directory", "path": path, "size": 0, "oid": ""} for path in sorted(above)]
            if "recursive=true" not in self.path.lower():
                entries = [each for each in entries if str(PurePosixPath(each["path"]).parent) == (folder or ".")]
            self._send(200, entries)

    def _paths(self, body: bytes, name: str, revision: str) -> None:
        if found := self._commit_of(name, revision):
            paths = json.loads(body)["paths"]
            self._send(200, [self._entry(path, data) for path, data in found[1].items() if path in paths])

    def _entry(self, path: str, data: bytes) -> dict[str, Any]:
        oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        lfs = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        is_large = path.endswith((".safetensors", ".bin", ".onnx", ".pt"))
        return {"type": "file", "path": path, "size": len(data), "oid": oid, **({"lfs": lfs} if is_large else {})}

    def _resolve(self, name: str, revision: str, path: str) -> None:
        found = self._commit_of(name, revision)
        if found is None:
            return
        commit, files = found
        if self.hub.models[name].is_gated and self.role is None:
            self._refuse(401, "GatedRepo", f"Access to model {name} is restricted.")
        elif path not in files:
            self._send(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        else:
            entry = self._entry(path, files[path])
            if "lfs" in entry:
                sha256 = entry["lfs"]["oid"]
                linked = {"X_Linked_Etag": f'"{sha256}"', "X_Linked_Size": str(len(files[path]))}
                self._send(
                    302,
                    b"",
                    Location=f"http://localhost:{self.server.server_address[1]}/cdn/{sha256}/{name}/{path}",
                    X_Repo_Commit=commit,
                    **linked,
                )
            else:
                self._content(files[path], ETag=f'"{entry["oid"]}"', X_Repo_Commit=commit)

    def _cdn(self, sha256: str, _: str) -> None:
        commits = [files for each in self.hub.models.values() for files in each.commits.values()]
        contents = [data for files in commits for data in files.values()]
        self._content(next(data for data in contents if hashlib.sha256(data).hexdigest() == sha256), is_weights=True)

    def _file(self, path: str) -> None:
        if path in self.hub.files:
            self._content(self.hub.files[path], is_weights=True)
        else:
            self._send(404, b"")

    def _content(self, data: bytes, *, is_weights: bool = False, **headers: str) -> None:
        """A file, or the rest of it that is asked for; some of them end too early."""
        first = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        begin = int(first[1]) if first else 0
        rest = data[begin : int(first[2]) + 1 if first and first[2] else None]
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {begin}-{begin + len(rest) - 1}/{len(data)}")
        for name, value in {"Content-Length": str(len(rest)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "HEAD":
            return
        is_broken = is_weights and self.hub.breaks > 0
        self.hub.breaks -= is_broken
        self.wfile.write(rest[: len(rest) // 2] if is_broken else rest)
        self.close_connection = self.close_connection or is_broken

    def _whoami(self, _: str) -> None:
        if self.role is None:
            self._refuse(401, "", "Invalid credentials in Authorization header")
        else:
            access = {"displayName": "t", "role": self.role}
            self._send(
                200, {"type": "user", "name": "me", "orgs": [], "auth": {"type": "access_token", "accessToken": access}}
            )

    def _validate(self, body: bytes) -> None:
        content = json.loads(body)
        self.hub.cards.append(content["content"])
        self._send(200, {"warnings": [], "errors": []})

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted.get('organization') or 'me'}/{wanted['name']}"
        if self.role != "write":
            self._refuse(403, "", "You don't have the rights to create a model under this namespace")
        elif name in self.hub.models:
            self._send(409, {"error": "You already created this model repo", "url": f"{self.hub.url}/{name}"})
        else:
            self.hub.add(
                name,
                {".gitattributes": b""},
                is_private=bool(wanted.get("private")) or wanted.get("visibility") == "private",
            )
            self._send(200, {"url": f"{self.hub.url}/{name}", "name": name, "id": name})

    def _branch(self, name: str, branch: str) -> None:
        refs = self.hub.models[name].refs
        if branch in refs:
            self._send(409, {"error": "Reference already exists"})
        else:
            refs[branch] = refs["main"]
            self._send(200, {})

    def _preupload(self, wanted: dict[str, Any], name: str, revision: str) -> None:
        if self._commit_of(name, revision) is not None:
            files = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in wanted["files"]]
            self._send(200, {"files": files})

    def _commit(self, body: bytes, name: str, revision: str) -> None:
        found = self._commit_of(name, revision)
        if found is None:
            return
        files = dict(found[1])
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            if entry["key"] == "deletedFile":
                del files[entry["value"]["path"]]
        commit = self.hub.add(name, files, revision)
        self._send(200, {"success": True, "commitOid": commit, "commitUrl": f"{self.hub.url}/{name}/commit/{commit}"})


CACHES = {"HF_HUB_CACHE": "hf", "HF_ASSETS_CACHE": "assets", "HF_TOKEN_PATH": "token"}


def empty_hub(tmp_path, monkeypatch):
    """A fixture: an empty hub that the library of this process asks, with empty caches, from an empty current folder."""
    with running_hub() as found:
        files = f"{found.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        caches = {name: str(tmp_path / path) for name, path in CACHES.items()}
        places = {"ENDPOINT": found.url, "HUGGINGFACE_CO_URL_TEMPLATE": files, "HF_HUB_DISABLE_XET": True, **caches}
        for name, value in places.items():
            monkeypatch.setattr(constants, name, value, raising=name != "HF_HUB_DISABLE_XET")
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "torch"))
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        yield found
