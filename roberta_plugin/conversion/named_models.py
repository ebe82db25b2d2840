"""Models by name -> files in the caches of the libraries that fetch them (`local_path`), and back (`push`).

    org/name, org/name@revision    of the Hugging Face hub: a snapshot in huggingface_hub's cache ($HF_HOME/hub)
    roberta.base, ...              fairseq's released archives: in torch's cache ($TORCH_HOME/hub/checkpoints)

A file or folder of that name takes precedence. The files that are fetched from the hub are config.json, weights in
safetensors, the tokenizer's files, and the files that modules.json and the index of the weights name: no code, and
pickles (.bin, .pt) only if an option asks for them. Environment variables of the library decide if it uses the network
(HF_HUB_OFFLINE), which hub (HF_ENDPOINT), and whose account (HF_TOKEN, or `hf auth login`).
"""

from __future__ import annotations

import glob
import hashlib
import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from huggingface_hub import HfApi, constants, errors, snapshot_download

from roberta_plugin import __version__
from roberta_plugin.conversion.model_files import (
    CONFIG,
    OLD_WEIGHTS,
    WEIGHTS,
    download,
    format_of,
)
from roberta_plugin.conversion.settings import RECORD, CommonExportSettings
from roberta_plugin.data.tokenizers import file_names
from roberta_plugin.registry import FORMATS

# name -> the model's name at the hub; fairseq publishes no checksums of its archives, so their sizes are compared
ARCHIVES = {
    "roberta.base": "FacebookAI/roberta-base",
    "roberta.large": "FacebookAI/roberta-large",
    "roberta.large.mnli": "FacebookAI/roberta-large-mnli",
    "roberta.large.wsc": "",
    "xlmr.base": "FacebookAI/xlm-roberta-base",
    "xlmr.large": "FacebookAI/xlm-roberta-large",
}
ARCHIVE_URL = "https://dl.fbaipublicfiles.com/fairseq/models"
NAMES = f"the name of a model of the Hugging Face hub (org/name), or of fairseq's archives ({', '.join(ARCHIVES)})"
_NAME = re.compile(r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII)
_FILES_OF_MODELS = (".pt", ".safetensors", ".bin", ".onnx", ".tar.gz", ".tgz", ".tar")
_ALLOWED = (
    *(CONFIG, WEIGHTS, f"{WEIGHTS}.index.json", "model-*.safetensors"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "sentencepiece.bpe.model"),
)
_OURS = "model.pt"  # the weights of an export by `--to fairseq`
_PICKLES = (OLD_WEIGHTS, f"{OLD_WEIGHTS}.index.json", "pytorch_model-*.bin", _OURS)
_TOKEN = "log in by `hf auth login`, or set HF_TOKEN"


def local_path(path: Path, *, allow_pickle: bool = False) -> Path:
    """The path itself if it exists or is not the name of a model; else the place of that model, after fetching it.

    Raises:
        FileNotFoundError: if there is no such model, or neither the network nor the cache has it.
        ValueError: if its weights have no form that may be read.
    """
    if path.exists():
        return path
    if str(path) in ARCHIVES:
        return _archive(str(path))
    match = _NAME.fullmatch(str(path))
    if match is None or path.name.endswith(_FILES_OF_MODELS):
        return path
    return _snapshot(match["repository"], match["revision"], allow_pickle=allow_pickle)


def hub_name(path: Path) -> str:
    """The name at the hub of a model in `local_path`'s form, or of its files; empty for all others.

    Example: ~/.cache/huggingface/hub/models--org--name/snapshots/0123.../model.safetensors -> "org/name".
    """
    if path.name.endswith(".tar.gz"):
        return ARCHIVES.get(path.name.removesuffix(".tar.gz"), "")
    above = (path, *path.parents)
    folders = [up.parent.parent.name for up in above if up.parent.name == "snapshots"]
    return (
        folders[0].removeprefix("models--").replace("--", "/") if folders and folders[0].startswith("models--") else ""
    )


def sha256_of(path: Path) -> str:
    """A hash of an archive, or of the files in its folder that would be fetched from the hub."""
    folder = path if path.is_dir() else path.parent
    files = (each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file())
    of_model = {name for name in files if any(fnmatchcase(name, each) for each in (*_allowed(), *_PICKLES))}
    of_model |= {name for name in _files_of_indexes(folder) if (folder / name).is_file()}
    names = {path.name} if format_of(path) == "fairseq" else {*of_model, *([path.name] if path.is_file() else [])}
    digest = hashlib.sha256(path.name.encode() if path.is_file() else b"")
    for name in sorted(names):
        with open(folder / name, "rb") as file:
            digest.update(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def _texts() -> tuple[str, ...]:
    """Names of the files by which our own exports read texts."""
    return ("dict.txt", *file_names())


def _allowed() -> tuple[str, ...]:
    """Patterns of the files that are fetched from any model."""
    return (*_ALLOWED, *(pattern for each in FORMATS.values() for pattern in each.files))


def _snapshot(repository: str, revision: str | None, *, allow_pickle: bool) -> Path:
    """The folder of a model of the hub in the library's cache, after fetching it.

    It takes up to three fetches, because files name other files: first the usual ones, then those that modules.json or
    an index of weights names, and for an export of ours those of its format, such as model.onnx.
    """
    name = f"{repository}@{revision}" if revision else repository

    def fetch(*patterns: str, commit: str | None = None) -> Path:
        return Path(
            snapshot_download(
                repository,
                revision=commit or revision,
                allow_patterns=list(patterns),
                library_name="roberta_plugin",
                library_version=__version__,
            )
        )

    try:
        folder = fetch(*_allowed(), *((*_PICKLES, *_texts()) if allow_pickle else ()))
        if named := _files_of_indexes(folder, has_pickles=allow_pickle):
            folder = fetch(*map(glob.escape, named), commit=folder.name)
        exported = [each for each in FORMATS.values() if each.own_mark and (folder / each.own_mark).is_file()]
        if exported:  # graphs that others exported only repeat the weights
            folder = fetch(*_allowed(), *_texts(), *(file for each in exported for file in each.own_files))
        of_formats = (name for each in FORMATS.values() for name in each.weights)
        wanted = (WEIGHTS, *of_formats, *((OLD_WEIGHTS, _OURS) if allow_pickle else ()))
        if any((folder / f"{each}{end}").is_file() for each in wanted for end in ("", ".index.json")):
            return folder
        files = HfApi().list_repo_files(repository, revision=folder.name)
    except Exception as error:  # from httpx, requests or the operating system, by the library's version
        raise _explain(error, name, repository, revision) from error
    pickles = [file for file in files if file.endswith((".bin", ".pt"))]
    if pickles and not allow_pickle:
        raise ValueError(
            f"{name} of the Hugging Face hub has its weights only as a pickle ({pickles[0]}), which is not fetched by "
            f"default. `roberta import {name} --allow-pickle --output-dir FOLDER` reads it, without running code of "
            "the file. Then give FOLDER."
        )
    raise ValueError(
        f"{name} of the Hugging Face hub has no weights that can be read here, such as {WEIGHTS}: it has "
        f"{', '.join(sorted(files)[:8]) or 'no files'}. Name another model or revision."
    )


def _files_of_indexes(folder: Path, *, has_pickles: bool = True) -> list[str]:
    """The files that other files name, such as indexes of weights, except files that are fetched from any model.

    Faults in those files are ignored here: their readers report them.
    """
    names: set[str] = set()
    for form, entry in FORMATS.items():
        if entry.named_files:
            names |= set(FORMATS.load(form, "named_files")(folder))
    for weights in (WEIGHTS, *([OLD_WEIGHTS] if has_pickles else [])):
        try:
            files = json.loads((folder / f"{weights}.index.json").read_bytes())["weight_map"].values()
            names |= {name for name in files if Path(name).name == name and name.endswith(Path(weights).suffix)}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            pass
    return sorted(name for name in names if not any(fnmatchcase(name, each) for each in (*_allowed(), *_PICKLES)))


def _explain(error: Exception, name: str, repository: str, revision: str | None) -> Exception:
    """The error for a user whose model could not be fetched. Its name may also be a path with a mistake in it."""
    hub = constants.ENDPOINT
    if isinstance(error, errors.RevisionNotFoundError):
        return FileNotFoundError(
            f"{repository} has no branch, tag or commit {revision!r} at {hub}: correct it, or leave @{revision} out."
        )
    if isinstance(error, errors.GatedRepoError):
        return FileNotFoundError(
            f"{repository} is a gated model: accept its terms at {hub}/{repository}, then {_TOKEN} to a token of that "
            "account."
        )
    nothing_here = f"There is no file or folder {name} here"
    status = getattr(getattr(error, "response", None), "status_code", None)
    # The hub answers 401 if it may not say that there is such a model. The library knows this only for https addresses.
    is_hidden = status == 401 and "Invalid credentials" not in str(error)
    if isinstance(error, errors.RepositoryNotFoundError) or is_hidden:
        return FileNotFoundError(
            f"{nothing_here}, and {hub} shows no model of that name: correct the path or the name. For a private "
            f"model, {_TOKEN}."
        )
    if isinstance(error, errors.LocalEntryNotFoundError):
        is_offline = constants.HF_HUB_OFFLINE
        why = "HF_HUB_OFFLINE is set" if is_offline else f"{hub} cannot be reached"
        remedy = "unset it" if is_offline else "try again with a network"
        return FileNotFoundError(
            f"{nothing_here}, and no complete model of that name in the cache {constants.HF_HUB_CACHE}; {why}. Correct "
            f"the path, or {remedy}."
        )
    if status in (401, 403):
        return FileNotFoundError(f"{hub} does not accept your token for {name}: {_TOKEN} again.")
    if isinstance(error, RuntimeError) and "home directory" in str(error):
        return FileNotFoundError(
            f"{nothing_here}, and there is no place to store a model of that name: this user has no home folder. Set "
            "HF_HOME (for fairseq's archives TORCH_HOME) and HOME to a folder, and run the same command again."
        )
    return FileNotFoundError(
        f"{nothing_here}, and the model of that name could not be fetched from {hub} ({_why(error)}). Run the same "
        "command again, which continues, or give a folder."
    )


def _why(error: Exception) -> str:
    """The first line of an error of the library, which may have several paragraphs, or its class."""
    return next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)


def _archive(name: str) -> Path:
    path = Path(torch.hub.get_dir(), "checkpoints", f"{name}.tar.gz")
    url = f"{ARCHIVE_URL}/{path.name}"
    if not path.is_file():
        try:
            download(url, path)
        except (OSError, ValueError) as error:
            raise FileNotFoundError(
                f"There is no file or folder {name} here, and fairseq's archive of that name could not be downloaded "
                f"({error}). Run the same command again, or download {url} on a machine that can, and give its path."
            ) from error
    return path


def check_push(name: str) -> None:
    """Refuse an upload without a token before there is anything to upload.

    Raises:
        ValueError: with the reason that the library gives.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"--push {name!r} must be ORG/NAME or ORG/NAME@BRANCH of the Hugging Face hub.")
    try:
        HfApi().whoami()
    except Exception as error:  # of httpx, requests or the operating system, by the library's version
        raise ValueError(
            f"--push {name}: {constants.ENDPOINT} accepts no token of yours ({_why(error)}): {_TOKEN}, or leave --push "
            "out."
        ) from error


def push(folder: Path, settings: CommonExportSettings) -> str:
    """Upload an exported folder without its record, which names paths of this machine; return the address.

    Raises:
        ValueError: if that fails. The folder is complete and can be uploaded again.
    """
    repository, _, branch = str(settings.push).partition("@")
    api = HfApi(library_name="roberta_plugin", library_version=__version__)
    try:
        api.create_repo(repository, private=settings.private or None, exist_ok=True)
        if settings.private and not api.model_info(repository).private:
            raise ValueError("it is a public model already, and --private was asked for")
        if branch:
            api.create_branch(repository, branch=branch, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            revision=branch or None,
            commit_message=f"Export to {settings.to} by roberta_plugin {__version__}",
            ignore_patterns=[RECORD],
            # shards of an earlier upload would stay beside a single file
            delete_patterns=["model*.safetensors*"] if any(folder.glob("model*.safetensors")) else None,
        )
    except Exception as error:  # of httpx, requests or the operating system, by the library's version
        raise ValueError(
            f"{folder} was exported, but not uploaded to {constants.ENDPOINT}/{repository}: {_why(error)}. Fix that, "
            "and run the same command again."
        ) from error
    return str(commit.commit_url)
