"""Text by URL: hf://, s3://, https:// and every other protocol of fsspec, for reading. Used by `text_inputs_files`.

A file is identified by its URL, its size, and what its server says of its version (ETag or time of change), if it
does. fsspec's file systems do not survive a fork, so each process opens its own, by URL.

Example: find("hf://datasets/org/name/*.parquet") -> the URLs of these files.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from roberta_plugin.files import atomic_write, cache_folder

_PROTOCOL = r"[A-Za-z][A-Za-z0-9+.-]*"
_URL = re.compile(rf"(?:{_PROTOCOL}::)*{_PROTOCOL}://")  # simplecache::https://host/a.txt
_HTTP = ("http://", "https://")
_WITH_USER = re.compile(rf"({_PROTOCOL}://)[^/\s?#,'\"]*@")
_WITH_QUERY = re.compile(
    rf"((?P<http>https?://)?(?(http)|{_PROTOCOL}://)[^\s?#]*)[?#]"  # s3://bucket/a?.txt is a pattern
    r"((?(http)|(?=[^\s'\"]*=))(?:(?!::)[^\s'\"])+?)(?=::|[\s'\"]|[.,:;)]*(?:\s|$))"
)
_HASHED_QUERY = re.compile(r"query-[0-9a-f]{8}")
# Parameters that say who may read a file, and until when; a new signature names the same file.
_SIGNATURES = re.compile(
    "x-(amz|goog)-.*|.*(signature|token|secret|password|passwd|credential|api.?key|accesskeyid|policy).*|expires"
    "|key-pair-id|auth.*|sig|se|sp|sv|sr|st|spr|skoid|sktid|skt|ske|sks|skv",
    re.IGNORECASE,
)
_PACKAGES = {
    **dict.fromkeys(("http", "https"), "aiohttp"),
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("abfs", "abfss", "az"), "adlfs"),
    **dict.fromkeys(("sftp", "ssh"), "paramiko"),
    "hf": "huggingface_hub",
}
# Names that file systems use for the version of a file, the best first.
_VERSIONS = (
    *("blob_id", "ETag", "etag", "md5Hash", "Content-MD5", "LastModified", "last_modified", "Last-Modified"),
    *("mtime", "updated", "created"),
)


class RemoteError(OSError):
    """A file that cannot be read by its URL; its message names the URL, the cause and the remedy."""


def is_url(name: str) -> bool:
    """True if a name is a URL, and not a path of this machine."""
    return _URL.match(name) is not None and not name.startswith("file://")


def without_secrets(text: str) -> str:
    """A URL, or a text with URLs, without user and password, and with a hash instead of a query.

    The same file has the same hash, whatever its signature is; also of chained URLs.

    Example: "zip://a::https://me:pw@host/b.zip?file=1&sig=x" -> "zip://a::https://host/b.zip?query-31926327"
    """

    def hashed(match: re.Match[str]) -> str:
        if _HASHED_QUERY.fullmatch(match[3]):
            return match[0]
        parameters = [each for each in match[3].split("&") if not _SIGNATURES.fullmatch(each.partition("=")[0])]
        digest = hashlib.sha256("&".join(parameters).encode(errors="surrogateescape")).hexdigest()[:8]
        return f"{match[1]}?query-{digest}" if parameters else match[1]

    return _WITH_QUERY.sub(hashed, _WITH_USER.sub(r"\1", text)) if "://" in text else text


def find(url: str) -> tuple[list[str], bool]:
    """URLs of the files that a URL names, which may be a pattern, in the order of their names; whether it is a folder.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the package of the protocol is not installed.
    """
    with _explain_errors(url):
        files, path = _file_system(url)
        if "*" not in path and (path.startswith(_HTTP) or not re.search(r"[?\[]", path)):
            return [url], files.info(path)["type"] == "directory"
        names = sorted(name for name, info in files.glob(path, detail=True).items() if info["type"] == "file")
        if not names:
            raise FileNotFoundError
        caches, _, outer = _parts_of(url)
        return [caches + files.unstrip_protocol(name) + outer for name in names], False


def identity(url: str, *, is_fresh: bool = False) -> tuple[int, str]:
    """Size in bytes (0 if unknown) and version (empty if unknown) of a file.

    `is_fresh`: by asking again, where a file system remembers its listings.
    """
    with _explain_errors(url):
        files, path = _file_system(url)
        if is_fresh:
            files.invalidate_cache()
        info = files.info(path)
        return info.get("size") or 0, next((str(info[key]) for key in _VERSIONS if info.get(key)), "")


def _parts_of(url: str) -> tuple[str, str, str]:
    """Caches, the file, and what it lies in.

    Example: "simplecache::zip://a.csv::https://host/b.zip" -> ("simplecache::", "zip://a.csv", "::https://host/b.zip")
    """
    match = re.fullmatch(r"((?:(?:(?!://|::).)*::)*)(.*?)(::.*)?", url, re.DOTALL)
    assert match
    return match[1], match[2], match[3] or ""


def file_name(url: str) -> str:
    """The path of a file in a URL, without a query, caches and the archive that it lies in.

    Example: "https://host/a.parquet?download=true" -> "https://host/a.parquet"; "zip://a.csv::b.zip" -> "zip://a.csv"
    """
    return _parts_of(url)[1].partition("?")[0]


def open_url(url: str, *, is_sequential: bool) -> Any:
    """Open a file to read it once from its beginning, or to read it anywhere."""
    with _explain_errors(url):
        files, path = _file_system(url)
        # A server need not know of ranges; one stream it does know.
        options = {"block_size": 0} if is_sequential and url.startswith(_HTTP) else {}
        file = files.open(path, "rb", **options)
        if is_sequential and getattr(getattr(file, "r", None), "status", 200) == 206:
            shown = without_secrets(url)
            raise RemoteError(
                f"{shown} cannot be read: its server sent a part of the file (206), and all of it was asked for. "
                "Download it by another program, and give the file."
            )
        return _File(url, files, file)


def is_web_page(url: str, head: bytes) -> bool:
    """True if a URL answers with an HTML page, such as a login form, by its server or its first bytes."""
    if re.match(rb"(\xef\xbb\xbf)?\s*<(!doctype\s+html|html)[\s>]", head, re.IGNORECASE):
        return True
    with _explain_errors(url):
        files, path = _file_system(url)
        kind = str(files.info(path).get("mimetype") or "") if path.startswith(_HTTP) else ""
    return kind.startswith(("text/html", "application/xhtml"))


def fetch(url: str) -> Path:
    """A copy of a file in the user's cache; it is made again where the server names no version, or another one."""
    size, version = identity(url)
    folder = cache_folder() / "tables"
    key = hashlib.sha256("\n".join([url, str(size), version]).encode()).hexdigest()[:16]
    path = folder / key / file_name(url).rpartition("/")[2]
    if not version or not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_url(url, is_sequential=True) as source, atomic_write(path) as file:
            shutil.copyfileobj(source, file, 2**20)
    return path


class _File(io.RawIOBase):
    """A file whose errors name its URL."""

    def __init__(self, url: str, files: Any, file: IO[bytes]) -> None:
        self._url, self._file = url, file
        self._files = files  # which may close its files when it is freed

    def read(self, size: int = -1) -> bytes:
        """Some of the following bytes, at most `size`; empty only at the end."""
        with _explain_errors(self._url):
            return bytes(self._file.read(size))

    def seek(self, offset: int, whence: int = 0) -> int:
        with _explain_errors(self._url):
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _file_system(url: str) -> tuple[Any, str]:
    import fsspec.core

    options: dict[str, Any] = {}
    if url.startswith(_HTTP):
        import aiohttp

        # By itself it ends after five minutes, and knows no proxies.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=60, sock_read=300)
        options["client_kwargs"] = {"timeout": timeout, "trust_env": True}
    files, path = fsspec.core.url_to_fs(url, **options)
    return files, path


@contextmanager
def _explain_errors(url: str) -> Iterator[None]:
    """While entered, an error of any file system or network becomes one that says in a sentence what to do."""
    protocol, shown = re.split("::|://", url)[0], without_secrets(url)
    try:
        yield
    except ImportError as error:
        package = _PACKAGES.get(protocol)
        remedy = f"pip install {package}" if package else "install it"
        raise ValueError(f"{shown}: {protocol}:// needs a package that is missing here ({error}): {remedy}.") from error
    except RemoteError:
        raise
    except Exception as error:
        # HTTP's file system reports any failure to get a file as a missing file.
        if isinstance(error, FileNotFoundError):
            if error.__cause__ is None or getattr(error.__cause__, "status", None) == 404:
                raise FileNotFoundError(f"No text file {shown}: check the address, and your access to it.") from error
            error = cast(Exception, error.__cause__)
        reason = ": ".join(filter(None, [type(error).__name__, without_secrets(" ".join(str(error).split()))[:200]]))
        raise RemoteError(
            f"{shown} cannot be read ({reason}): check the address, the network and your access to it, and run the "
            "same command again."
        ) from error
