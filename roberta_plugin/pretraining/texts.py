"""Text -> a tokenizer and a data-bin in the folder of a pretraining, each made once.

text.json records what the folder's files were made from. A second start with other text is refused, and so is a folder
that held such files before.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from roberta_plugin.data.manifest import file_record, sha256_of_file, sha256_of_files
from roberta_plugin.data.text_inputs import FAIRSEQ_RULES, InputSettings, LineRules, count_lines, lines_of, read_blocks
from roberta_plugin.data.text_inputs_files import TextInput, find_inputs
from roberta_plugin.data.text_inputs_remote import without_secrets
from roberta_plugin.data.tokenizers import has_tokenizer
from roberta_plugin.files import atomic_write
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.machine import num_cores
from roberta_plugin.pretraining.choice import vocabulary_size
from roberta_plugin.pretraining.settings import PretrainSettings
from roberta_plugin.record import differences, moved, refuse

logger = logging.getLogger(__name__)

TEXT_RECORD = "text.json"
_COPIES = ("text/train.txt", "text/valid.txt")
_CONTENT = ("versions", "sha256", "copies", "bad_lines")  # in text.json, besides the settings
_REMEDIES = {
    "text": "give it as DATA, with --valid",
    "tokenizer": "give its folder by --tokenizer",
    "data-bin": "give its folder as DATA",
}
_EVERY, _LINES, _MOST_HELD_OUT = 50, 50, 2**21  # documents, lines of one at most, characters
_LARGEST_COPY = 2**32  # bytes: from larger texts, no part is held out


def check_texts(settings: PretrainSettings) -> None:
    """Refuse text that is empty, held-out text that is trained on, and a folder made from other text.

    Pipes cannot be checked.
    """
    reading, found = settings.reading, {}
    for option, patterns in (("DATA", settings.data), ("--valid", settings.valid), ("--test", settings.test)):
        found[option] = reading.sources(patterns) if patterns else []
    reading.check_used(source for sources in found.values() for source in sources)
    trained = {os.path.realpath(source.path) for source in found["DATA"] if not source.is_stream}
    for option, sources in found.items():
        if sources and not any(file.is_stream for file in sources) and not any(documents(sources, reading.rules)):
            names = ", ".join(dict.fromkeys(source.name for source in sources))
            raise ValueError(f"{names[:200]}: there is no text, only blank lines or nothing.")
        for source in sources if option != "DATA" else ():
            if os.path.realpath(source.path) in trained:
                raise ValueError(
                    f"{source.name} is given as DATA and by {option}: scores on text of the training say nothing. "
                    "Leave it out of one of them; without --valid, a part of DATA is held out."
                )
    check_same_text(settings, found["DATA"])


def steps_of_text(settings: PretrainSettings) -> list[list[str]]:
    """The verbs that make a tokenizer and a data-bin of text; they leave what is there already.

    Text without --valid is copied, a part of it into valid.txt. So is a pipe, which can be read only once.
    """
    folder, reading = settings.folder, settings.reading
    sources, train, valid = reading.sources(settings.data), list(settings.data), list(settings.valid)
    if not check_same_text(settings, sources):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / TEXT_RECORD, _record(settings, sources))
    options = _options_of(reading)
    if len(sources) > 1 and valid:
        options["binarize"] += ["--blank-line-after-files"]
    if is_copied(settings, sources):
        copy, held_out = (folder / name for name in _COPIES)
        if not copy.is_file():  # the last that is written
            _copy(settings, sources)
        elif any(source.is_stream for source in sources):
            logger.warning(f"The pipe is not read again: the text is {copy}, which the first start read from it.")
        options = options if valid else {"tokenizer": ["--format", "text"], "binarize": ["--format", "text"]}
        train, valid = [str(copy)], valid or [str(held_out)]
    tokenizer = folder / "tokenizer" if settings.makes_tokenizer else settings.tokenizer
    assert tokenizer is not None
    verbs = []
    if settings.makes_tokenizer and not (tokenizer / "dict.txt").is_file():
        size = settings.vocab_size or vocabulary_size(text_bytes(find_inputs(train)))
        kind = ["--vocab-size", str(size)] if settings.tokenizer is None else ["--kind", str(settings.tokenizer)]
        words = options["tokenizer"] if train == [str(folder / _COPIES[0])] else _options_for(reading, sources)
        verbs.append(["tokenizer", "train", "--input", *train, *kind, *words])
        verbs[-1] += ["--output-dir", str(tokenizer)]
    verbs.append(["binarize", "--tokenizer", str(tokenizer), "--train", *train, "--valid", *valid])
    verbs[-1] += ["--test", *settings.test] if settings.test else []
    verbs[-1] += [*options["binarize"], "--output-dir", str(folder / "data-bin")]
    return verbs


def is_copied(settings: PretrainSettings, sources: Sequence[TextInput]) -> bool:
    """True if a copy of the text is made in the folder of the run."""
    return not settings.valid or any(source.is_stream for source in sources)


def copies_of(settings: PretrainSettings) -> list[Path]:
    """The files of a copied text: training text, and held-out text where none is given."""
    return [settings.folder / name for name in (_COPIES[:1] if settings.valid else _COPIES)]


def _copy(settings: PretrainSettings, sources: Sequence[TextInput]) -> None:
    """Make the copies, and keep what they are; text that changes meanwhile is refused."""
    folder, rules = settings.folder, settings.reading.rules
    paths = copies_of(settings)
    before = [source.identity() for source in sources]
    num_bad = copy_text(sources, paths[0], None if settings.valid else paths[1], rules=rules)
    for source, identity in zip(sources, before, strict=True):
        if source.identity(is_fresh=True) != identity:
            for path in paths:
                path.unlink(missing_ok=True)
            raise ValueError(f"{source.name} changed while it was being read: run the same command again.")
    if num_bad:
        logger.warning(f"{num_bad:,} bad line{'s' * (num_bad != 1)} of the text left out, by --skip-bad-lines")
    record = _read_text_record(folder) or {}
    copies = {str(path.relative_to(folder)): {**file_record(path), "time": path.stat().st_mtime_ns} for path in paths}
    write_json(folder / TEXT_RECORD, {**record, "copies": copies, "bad_lines": num_bad})


def _options_of(reading: InputSettings) -> dict[str, list[str]]:
    """How text is read, as options of the verbs `tokenizer` and `binarize`."""
    words = options_of_reading(reading)
    words += ["--skip-bad-lines"] if reading.rules.skip_bad_lines else []
    return {"tokenizer": words, "binarize": list(words)}


def options_of_reading(reading: InputSettings) -> list[str]:
    """The options with a value by which text is read, as far as they are not the defaults."""
    defaults = _reading(InputSettings())
    return [word for name, value in _reading(reading).items() if value != defaults[name] for word in (name, value)]


def _options_for(reading: InputSettings, sources: Iterable[TextInput]) -> list[str]:
    """The options without those for tables that other inputs than `sources` are."""
    forms = {source.form for source in sources}
    rules = reading.rules if forms != {"text"} else replace(reading.rules, text_column=FAIRSEQ_RULES.text_column)
    delimiter = InputSettings().delimiter if forms.isdisjoint({"csv", "tsv"}) else reading.delimiter
    return _options_of(replace(reading, rules=rules, delimiter=delimiter))["tokenizer"]


def _reading(reading: InputSettings) -> dict[str, str]:
    """The options with a value that say how text is read."""
    return {
        "--text-column": reading.rules.text_column,
        "--format": reading.text_format,
        "--delimiter": reading.delimiter,
    }


def check_same_text(settings: PretrainSettings, sources: Sequence[TextInput]) -> bool:
    """Refuse other text than the files in the folder were made from, and files there that text.json does not list.

    Returns whether there are such files.
    """
    folder = settings.folder
    made = [name for name in _names_made(settings, sources) if (folder / name).is_file()]
    before = _read_text_record(folder)
    if before is None and not made and settings.makes_tokenizer and has_tokenizer(folder / "tokenizer"):
        made = ["tokenizer"]  # without a dict.txt, as of other programs
    if not made:
        return False
    if before is None:
        raise FileExistsError(
            f"{folder / made[0]} was there before, and no {TEXT_RECORD} says which text it was made from: "
            f"{_REMEDIES[made[0].partition('/')[0]]}, move it away, or give another --output-dir."
        )
    _check_record(settings, sources, before)
    _check_versions(folder, sources, before)
    _check_copies(folder, [name for name in made if name in _COPIES], before.get("copies") or {})
    return True


def _names_made(settings: PretrainSettings, sources: Sequence[TextInput]) -> list[str]:
    """Files that would be made here, and that are used if they exist already."""
    copies = (_COPIES[:1] if settings.valid else _COPIES) if is_copied(settings, sources) else ()
    tokenizer = ["tokenizer/dict.txt"] if settings.makes_tokenizer else []
    return [*copies, *tokenizer, *(f"data-bin/{name}" for name in ("dict.txt", "train.idx", "train.bin"))]


def _check_record(settings: PretrainSettings, sources: Sequence[TextInput], before: dict[str, Any]) -> None:
    folder, now = settings.folder, _settings_of(settings, sources)
    before = {name: value for name, value in before.items() if name not in _CONTENT}
    for name in ("DATA", "--valid", "--tokenizer"):  # may have moved with the folder; older records do not say it
        if isinstance(before.get(name), str):
            before[name] = without_secrets(before[name])
        if before.get(name) and now[name] and before.get("--output-dir"):
            among, root = str(now[name]).split(", "), before["--output-dir"]
            parts = before[name].split(", ")
            before[name] = ", ".join(moved(part, before=root, now=folder, among=among) for part in parts)
    refuse(
        f"{folder} holds what was made from other text",
        differences(before, now, free=lambda name: name == "--output-dir", named=str),
        "Give the same to go on, or another --output-dir.",
    )


def _check_versions(folder: Path, sources: Sequence[TextInput], before: dict[str, Any]) -> None:
    """Refuse text that has changed under its name and size: by its time and content, or by its server's version."""
    versions, digests = before.get("versions"), before.get("sha256")
    if not versions or len(versions) != len(sources):  # of an earlier version of this package
        return
    now = _versions(sources)
    changed = [number for number, version in enumerate(now) if version != versions[number] and versions[number]]
    for number in changed:
        source = sources[number]
        if source.is_remote or source.is_stream:
            is_same = source.is_stream or not now[number]
        elif digests and len(digests) == len(sources) and digests[number]:
            is_same = sha256_of_file(source.path) == digests[number]
        else:
            is_same = (folder / "data-bin" / "manifest.json").is_file()  # `roberta binarize` compares it
        if not is_same:
            raise ValueError(
                f"{source.name} has changed since {folder} was made from it: give another --output-dir. To go on with "
                f"the text as it was, give {folder / 'data-bin'} as DATA, once it is made."
            )
    if changed:
        write_json(folder / TEXT_RECORD, {**before, "versions": now})


def _check_copies(folder: Path, names: Sequence[str], copies: dict[str, Any]) -> None:
    for name in names:
        path, record = folder / name, copies.get(name)
        if not isinstance(record, dict) or (path.stat().st_size, path.stat().st_mtime_ns) == (
            record.get("bytes"),
            record.get("time"),
        ):
            continue
        if sha256_of_file(path) != record.get("sha256"):
            raise ValueError(
                f"{path} is no longer the copy of the text that was made here: delete {folder}, and it is made again, "
                f"or give {path} as DATA, with another --output-dir."
            )


def _record(settings: PretrainSettings, sources: Sequence[TextInput]) -> dict[str, Any]:
    """The content of text.json; "sha256" has a hash for each source, or None for all if the local files are large.

    Example: a file, a URL and another file -> "sha256": ["3f0a...", None, "b91c..."]
    """
    local = [source for source in sources if not (source.is_remote or source.is_stream)]
    digests = None
    if sum(source.size for source in local) <= _LARGEST_COPY:
        hashes = sha256_of_files([source.path for source in local], workers=num_cores())
        by_path = dict(zip((source.path for source in local), hashes, strict=True))
        digests = [by_path.get(source.path) for source in sources]
    return {**_settings_of(settings, sources), "versions": _versions(sources), "sha256": digests}


def _settings_of(settings: PretrainSettings, sources: Sequence[TextInput]) -> dict[str, Any]:
    def described(files: Iterable[TextInput]) -> str:
        return ", ".join(
            "a pipe" if file.is_stream else f"{file.identity()[0]} of {file.size:,} bytes" for file in files
        )

    reading, given = settings.reading, settings.tokenizer
    return {
        "DATA": described(sources),
        "--valid": described(reading.sources(settings.valid)) if settings.valid else None,
        "--tokenizer": str(given if settings.makes_tokenizer else given.absolute()) if given else None,
        "--vocab-size": settings.vocab_size,
        **_reading(reading),
        "--skip-bad-lines": reading.rules.skip_bad_lines or None,
        "--output-dir": str(settings.folder),
    }


def _versions(sources: Sequence[TextInput]) -> list[int | str]:
    """Times of change, or what servers say of their files' versions."""
    return [source.identity()[2] for source in sources]


def _read_text_record(folder: Path) -> dict[str, Any] | None:
    remedy = f"give {folder / 'data-bin'} as DATA to go on with what was made, or another --output-dir"
    hints = {"DATA": str, "versions": list | None, "sha256": list | None, "copies": dict | None}
    return read_json(folder / TEXT_RECORD, keys=("DATA",), remedy=remedy, hints=hints)


def text_bytes(sources: Iterable[TextInput]) -> int:
    """Approximate size of the text in bytes: three times a compressed file's own. The size of pipes is not known."""
    return sum(source.size * (3 if source.suffix or source.is_columnar else 1) for source in sources)


def copy_text(sources: Sequence[TextInput], train: Path, valid: Path | None, *, rules: LineRules) -> int:
    """Copy text into `train`; with `valid`, every 50th document goes there instead, up to 2 MB.

    Returns the number of bad lines that were left out.

    Raises:
        ValueError: if the text is too large to copy, or too short to hold a document out.
    """
    names = ", ".join(dict.fromkeys(source.name for source in sources))
    if text_bytes(sources) > _LARGEST_COPY:
        raise ValueError("--valid is missing: text of more than 4 GB needs a held-out file of its own.")
    train.parent.mkdir(parents=True, exist_ok=True)
    written, bad = 0, [0]
    with atomic_write(train, "w") as of_train, atomic_write(valid, "w") if valid else nullcontext() as of_valid:
        is_empty = True
        for is_held_out, document in split_documents(sources, rules, bad):
            is_empty = False
            text = "\n".join(document) + "\n\n"
            if of_valid is not None and is_held_out:
                written += of_valid.write(text)
            else:
                of_train.write(text)
        if valid and not written:
            raise ValueError(
                f"{names}: there is no text."
                if is_empty
                else f"{names}: there are fewer than {_EVERY} documents (a blank line ends one, and so do "
                f"{_LINES} lines), too few to hold one out. Give a held-out text by --valid."
            )
    return bad[0]


def split_documents(
    sources: Iterable[TextInput], rules: LineRules, bad: list[int] | None = None
) -> Iterator[tuple[bool, list[str]]]:
    """The documents, each with True if it is one of those that `copy_text` holds out."""
    written = 0
    for number, document in enumerate(documents(sources, rules, bad), start=1):
        is_held_out = number % _EVERY == 0 and written < _MOST_HELD_OUT
        written += sum(len(line) + 1 for line in document) + 1 if is_held_out else 0
        yield is_held_out, document


def documents(sources: Iterable[TextInput], rules: LineRules, bad: list[int] | None = None) -> Iterator[list[str]]:
    """Lines between blank lines; a longer document in parts of `_LINES`. Bad lines that are left out add to `bad`."""
    for source in sources:
        document: list[str] = []
        first_line = 1
        for block in read_blocks(source):
            lines, num_bad = lines_of(block, source=source, first_line=first_line, rules=rules)
            if bad is not None:
                bad[0] += num_bad
            first_line += count_lines(block, source)
            for line in lines:
                if line:
                    document.append(line)
                if document and (not line or len(document) == _LINES):
                    yield document
                    document = []
        if document:
            yield document
