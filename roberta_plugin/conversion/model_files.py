"""The files of a trained model: the format of a path, and its checkpoint, dict.txt, tokenizer and labels.

fairseq's released archives do not contain GPT-2's two files, encoder.json and vocab.bpe: fairseq downloads them into
its cache when a model is first used. Here they are looked for in the same cache, and otherwise downloaded into it,
without the packages that fairseq's own download needs.
"""

from __future__ import annotations

import os
import socket
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from roberta_plugin.conversion.portable import heads_of, labels_of
from roberta_plugin.conversion.settings import RECORD
from roberta_plugin.data.manifest import sha256_of_file
from roberta_plugin.data.mixture import data_folders
from roberta_plugin.data.tokenizers import WORDS_ALONE, has_tokenizer, load_tokenizer
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import FILES, ByteLevelBpe, read_files
from roberta_plugin.data.tokenizers.whitespace import is_meant
from roberta_plugin.data.vocabulary import MADE_UP, SPECIALS, Vocabulary
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.kinds import deciding_numbers
from roberta_plugin.finetuning.kinds.outputs import DEVELOPMENT, is_number
from roberta_plugin.finetuning.kinds.score_names import current_evaluation
from roberta_plugin.json_files import read_json
from roberta_plugin.models.checkpoints import saved_options
from roberta_plugin.registry import FORMATS, TOKENIZERS
from roberta_plugin.runs import FILES as CHOICES
from roberta_plugin.runs import RUN, RUNS, RunFiles

CHECKPOINT_NAMES = (*CHOICES.values(), "model.pt")
CONFIG, WEIGHTS, OLD_WEIGHTS = "config.json", "model.safetensors", "pytorch_model.bin"  # of Hugging Face
_ARCHIVES = (".tar.gz", ".tgz", ".tar")
GPT2_FILES = "https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe"
SHA256 = {
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
_SECONDS = 30.0  # longest wait for an answer


def format_of(path: Path) -> str | None:
    """The form of a model's file or folder: "checkpoint", or a name of `registry.FORMATS`, such as "fairseq" for an
    archive; None if unknown.

    Raises:
        ValueError: for files that are not a model by themselves, or of a format whose extension is not installed.
    """
    if path.is_file():
        return _format_of_file(path)
    folders = (path, path / "checkpoints")
    has_checkpoint = any((folder / name).is_file() for folder in folders for name in CHECKPOINT_NAMES)
    if has_checkpoint or (path / RUNS / "report.json").is_file():  # the folder of a run, or of a fine-tuning
        return "checkpoint"
    _check_is_installed(path)
    found = {name: each for name, each in FORMATS.items() if any((path / mark).is_file() for mark in each.marks)}
    is_foreign = (path / CONFIG).is_file() or any(each.is_hugging_face for each in found.values())
    is_own = any(each.own_mark and (path / each.own_mark).is_file() for each in found.values())
    if is_foreign and not is_own:  # config.json, perhaps beside a mark of another format
        return "huggingface"
    for each in found.values():
        if each.why_not_alone:  # a part of a model, without the rest
            raise ValueError(f"{path} {each.why_not_alone.format(path=path)}")
    return next(iter(found), None)


def _format_of_file(path: Path) -> str | None:
    """As `format_of`, for a file."""
    if path.name.endswith(_ARCHIVES):
        return "fairseq"
    if path.suffix == ".pt":
        return "checkpoint"
    if any(path.name in (*each.marks, *each.weights) for each in FORMATS.values()):  # adapter_model.safetensors
        raise ValueError(f"{path} is one of several files of a model: give their folder, {path.parent}.")
    return "huggingface" if path.suffix == ".safetensors" or path.name == OLD_WEIGHTS else None


def _check_is_installed(path: Path) -> None:
    """Refuse the folder of an export to a format that is not registered."""
    record = read_json(path / RECORD, keys=(), remedy="remove it") if path.is_dir() else None
    form = (record or {}).get("to")
    if isinstance(form, str) and form not in (*FORMATS, "roberta_plugin"):
        raise ValueError(f"{path} is an export to {form}. {FORMATS.unknown(form)} Install the extension that has it.")


def find_checkpoint(folder: Path, name: str | None) -> Path:
    """The checkpoint called `name` in `folder`; by default, the result of its run, or the first of the usual names.

    `folder` may also be the checkpoint itself, the folder of a run with a subfolder checkpoints/, or the output folder
    of a finished `roberta finetune`, whose best run is used.
    """
    if name is None and folder.is_file():
        return folder
    names: tuple[str, ...] = (name,) if name else CHECKPOINT_NAMES
    run = RunFiles.around(folder)
    if name is None and run.choice() == "last":
        if run.has_weights():
            return run.chosen_checkpoint()
        raise FileNotFoundError(
            f"{run.chosen_checkpoint()} does not exist, and {run.path / RUN} says that the run's result is its last "
            "checkpoint. Give the checkpoint file that you mean."
        )
    for path in (base / each for base in (folder, folder / "checkpoints") for each in names):
        if path.is_file():
            return path
    best = None if name else best_of_finetuning(folder)
    if best is not None:
        return best
    if not folder.exists():
        raise FileNotFoundError(
            f"No checkpoint in {folder}, which does not exist: give the folder of a checkpoint, a checkpoint file, "
            "or a model's name: org/name of the Hugging Face hub, or one of fairseq's archives, such as roberta.base."
        )
    raise FileNotFoundError(
        f"No checkpoint in {folder}: looked for {', '.join(names)}. Give the folder that fairseq-train wrote to "
        "(--save-dir), or a checkpoint file."
    )


def best_of_finetuning(folder: Path) -> Path | None:
    """The checkpoint of the best run of a finished `roberta finetune`, by its --output-dir; None if it is not one.

    Raises:
        FileNotFoundError: if it is a cross-validation, with a model for each fold.
    """
    folds = sorted(folder.glob("fold-*-of-*"), key=lambda path: (len(path.name), path.name))
    if folds:
        raise FileNotFoundError(
            f"{folder} is a cross-validation, with a model for each fold: give one of them, such as {folds[0]}, or "
            "fine-tune without --folds."
        )
    report = folder / RUNS / "report.json"
    remedy = f"run the fine-tuning in {folder} again, which rewrites it"
    content = read_json(report, keys=["ensemble"], remedy=remedy, hints={"ensemble": list})
    members = content["ensemble"] if content else []
    if not members:
        return None
    return RunFiles(folder / RUNS / members[0]["run"]).chosen_checkpoint()


def finetuning_folder(checkpoint: Path) -> Path | None:
    """The folder of the `roberta finetune` that trained a checkpoint; None if there is no such folder."""
    return RunFiles.around(checkpoint).output_dir


class OwnResults(NamedTuple):
    """The results of an evaluation for one checkpoint."""

    metrics: dict[str, float]
    num_runs: int
    """Runs that were evaluated together."""
    tf_idf: dict[str, float]
    """The metrics of TF-IDF with logistic regression."""
    options: dict[str, str]
    """Options of the scoring, named as on the command line."""


def own_results(checkpoint: Path, split: str) -> OwnResults:
    """The results of a checkpoint on a split; empty if it was not evaluated.

    The evaluation is in the folder of its `roberta finetune`, or in the folder results beside the checkpoint. Either
    folder may have been moved.

    Raises:
        ValueError: naming the file, if no evaluation could have written it.
    """
    folder = finetuning_folder(checkpoint)
    path = (folder or checkpoint.parent) / "results" / f"evaluation_{split}.json"
    remedy = "evaluate again, which rewrites it"
    content = read_json(path, keys=["members"], remedy=remedy)
    if content is None:
        return OwnResults({}, 0, {}, {})
    try:
        content = current_evaluation(content)
        members = content["members"]
        # CELL/seed-N/checkpoints/FILE; or FOLDER/FILE, or FILE
        of_run = checkpoint.absolute().relative_to(folder / RUNS) if folder is not None else None
        num_same = len(of_run.parts) if of_run else min(2, len(members))
        ending = checkpoint.absolute().parts[-num_same:]
        metrics = [dict(each["metrics"]) for each in members if Path(each["checkpoint"]).parts[-num_same:] == ending]
        more = [dict(content.get(name, {})) for name in ("tf_idf", "options")]
        numbers = [(name, each[name]) for each in (*metrics, more[0]) for name in deciding_numbers() if name in each]
        is_damaged = not all(is_number(*number) for number in numbers)
    except (TypeError, ValueError, KeyError):
        is_damaged = True
    if is_damaged:
        raise ValueError(f"{path} is not an evaluation of `roberta evaluate`: {remedy}.")
    return OwnResults(metrics[0], len(members), *more) if metrics else OwnResults({}, 0, {}, {})


def decisions_of(checkpoint: Path) -> dict[str, float]:
    """The numbers by which a fine-tuned checkpoint decides, found on its development set; {} if it has none."""
    metrics = own_results(checkpoint, DEVELOPMENT).metrics
    return {name: metrics[name] for name in deciding_numbers() if name in metrics}


def find_dictionary(checkpoint: Path, state: dict[str, Any], data: str | os.PathLike[str] | None) -> Path:
    """The dict.txt of `data` if given, else of the checkpoint's own folder, else of the folder it was trained on."""
    candidates = [Path(data)] if data is not None else [checkpoint.parent]
    if data is None:
        trained_on = saved_options(state)[0].get("data")
        trained_on = trained_on[0] if isinstance(trained_on, list) and trained_on else trained_on  # a list in 2019
        candidates += data_folders(str(trained_on))[:1] if trained_on else []
    # A relative path begins in the folder where the training was started, which is usually above its checkpoints.
    above = [] if data is not None else [up / candidates[-1] for up in checkpoint.absolute().parents]
    for folder in (*candidates, *above):
        for path in (folder / "dict.txt", folder / "input0" / "dict.txt"):
            if path.is_file():
                return path
    raise FileNotFoundError(
        f"No dict.txt for {checkpoint}: looked in {', '.join(map(str, candidates))}. Name the folder that holds "
        "dict.txt and the tokenizer's files with data=..."
    )


def find_tokenizer(checkpoint: Path, dictionary: Path, folder: str | os.PathLike[str] | None) -> Tokenizer:
    """The tokenizer in `folder` if given, else in `tokenizer_folder`, or GPT-2's for fairseq's released models.

    For the word `whitespace`, it is made of the words in `dictionary`.
    """
    if folder is not None:
        return load_tokenizer(folder, symbols=Vocabulary.load(dictionary).symbols if is_meant(folder) else None)
    try:
        return load_tokenizer(tokenizer_folder(checkpoint, dictionary))
    except FileNotFoundError:
        if not is_of_gpt2(Vocabulary.load(dictionary)):
            raise
    return gpt2_tokenizer(checkpoint.parent)


def tokenizer_folder(checkpoint: Path, dictionary: Path) -> Path:
    """The folder of a model's tokenizer: the folder of dict.txt, the one above it, or the checkpoint's."""
    above = [dictionary.parent.parent] if dictionary.parent.name == "input0" else []
    candidates = [dictionary.parent, *above, checkpoint.parent]
    for candidate in candidates:
        if has_tokenizer(candidate):
            return candidate
    raise FileNotFoundError(
        f"No tokenizer for {checkpoint}: looked in {', '.join(dict.fromkeys(map(str, candidates)))}. A model needs "
        "exactly the files that it was trained with; for fairseq's released RoBERTa they are encoder.json and "
        f"vocab.bpe of GPT-2 ({GPT2_FILES}). Put them beside dict.txt, or name their folder by --tokenizer "
        "(tokenizer=...). "
        f"{WORDS_ALONE}"
    )


def check_bpe(bpe: str | None, tokenizer: Tokenizer) -> None:
    """Refuse fairseq's `bpe` argument if it names another kind of tokenizer than the model's."""
    entry = TOKENIZERS.get(tokenizer.name)
    if bpe is not None and (entry is None or entry.fairseq_bpe != bpe):
        raise ValueError(
            f"bpe={bpe!r} is not the tokenizer of this model, which is {tokenizer.name} by its files: leave bpe out, "
            "or name the folder of other files with tokenizer=..."
        )


def training_data(state: Mapping[str, Any], dictionary: Path) -> dict[str, Any]:
    """The training data of a fine-tuned checkpoint, in the form of `finetuning/identity.py`; empty for others.

    For fairseq's own sentence_prediction, labels are the lines of label/dict.txt in the folder of the data; the labels
    of the released roberta.large.mnli are known.
    """
    if record := identity.read_record(state):
        return record
    options, _ = saved_options(state)
    labels = [names for head in heads_of(state) if (names := labels_of(state, head, data=dictionary.parent.parent))]
    is_fairseqs = options.get("_name") == "sentence_prediction"
    if not is_fairseqs and len(labels) != 1:
        return {}
    is_number = is_fairseqs and bool(options.get("regression_target"))
    settings: dict[str, Any] = {"kind": "regression" if is_number else "classification", "labels": list(*labels[:1])}
    return {"task": "", "settings": settings}


def is_of_gpt2(vocabulary: Vocabulary) -> bool:
    """True if the symbols are the 50,257 ids of GPT-2's encoder.json, as in fairseq's released models."""
    listed = [symbol for symbol in vocabulary.symbols[len(SPECIALS) : vocabulary.num_binarized]]
    numbers = {symbol for symbol in listed if symbol.isdigit()}
    return len(numbers) > 50_000 and all(symbol in numbers or symbol.startswith((MADE_UP, "<")) for symbol in listed)


def gpt2_tokenizer(folder: Path) -> ByteLevelBpe:
    """The tokenizer of fairseq's released models.

    Raises:
        FileNotFoundError: naming both files, if they are not in fairseq's cache and cannot be downloaded.
    """
    paths: list[Path] = []
    for name in FILES:
        try:
            wanted = _in_cache(name)
            # fairseq appends the server's ETag to names, and writes a .json with the address beside each file.
            cached = (path for path in sorted(wanted.parent.glob(f"{wanted.name}*")) if path.suffix != ".json")
            path = next((path for path in cached if path.is_file() and sha256_of_file(path) == SHA256[name]), None)
            if path is None:
                download(f"{GPT2_FILES}/{name}", wanted, sha256=SHA256[name])
            paths.append(path or wanted)
        except (OSError, ValueError) as error:  # no network, a cache that cannot be written, another file there
            raise FileNotFoundError(
                f"{folder} has no tokenizer: fairseq's archives do not contain GPT-2's encoder.json and vocab.bpe, and "
                f"{name} could not be downloaded ({error}). Download {GPT2_FILES}/encoder.json and "
                f"{GPT2_FILES}/vocab.bpe on a machine that can, and put both beside the unpacked model.pt and "
                "dict.txt; or give a folder with both and dict.txt as --data."
            ) from error
    return read_files(*paths)


def _in_cache(name: str) -> Path:
    from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
    from fairseq import file_utils

    return Path(os.fspath(file_utils.PYTORCH_FAIRSEQ_CACHE), file_utils.url_to_filename(f"{GPT2_FILES}/{name}"))


def download(url: str, path: Path, *, sha256: str = "") -> None:
    """Download a file, with a progress bar. It appears when it is complete, by its hash or else by its size.

    Raises:
        ValueError: if the file has another hash, or is not complete.
        OSError: if there is no connection, or no room on the disk.
    """
    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    seconds = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SECONDS)  # torch's function waits forever
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".download-") as folder:
            part = Path(folder, path.name)
            try:
                torch.hub.download_url_to_file(url, os.fspath(part), hash_prefix=sha256 or None)
            except RuntimeError as error:  # another hash
                raise ValueError(f"the server has another file at {url}") from error
            if not sha256:
                with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
                    size = int(answer.headers.get("Content-Length", part.stat().st_size))
                if part.stat().st_size != size:
                    raise ValueError(f"{url} ended after {part.stat().st_size:,} of {size:,} bytes")
            with open(part, "rb") as file:
                os.fsync(file.fileno())
            os.replace(part, path)
    finally:
        socket.setdefaulttimeout(seconds)
