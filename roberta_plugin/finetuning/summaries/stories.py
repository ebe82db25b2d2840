"""CNN/DailyMail as it is distributed (Hermann et al. 2015): stories, and which of them belong to which split.

A story has paragraphs, and after each line `@highlight` a sentence of the summary. Either each split has a folder, such
as train/*.story, or lists of addresses say which story belongs to which split (all_train.txt, all_val.txt,
all_test.txt; the story of an address is the file called by the SHA-1 of the address).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from roberta_plugin.finetuning.raw_files import read_text

_LISTS = (  # names of lists of addresses, by split; the first kind that is there counts
    {"train": ("all_train",), "valid": ("all_val", "all_valid"), "test": ("all_test",)},
    {"train": ("mapping_train",), "valid": ("mapping_valid",), "test": ("mapping_test",)},
    {
        split: tuple(f"{paper}wayback_{part}_urls" for paper in ("", "cnn_", "dailymail_"))
        for split, part in {"train": "training", "valid": "validation", "test": "test"}.items()
    },
)
_HIGHLIGHT = "@highlight"
_SHA1 = re.compile(r"[0-9a-f]{40}")


def find_stories(raw: Path, splits: Mapping[str, tuple[str, ...]]) -> dict[str, list[Path]]:
    """The stories of each split, in folders or by lists; empty if there are none.

    Args:
        raw: folder.
        splits: names of the folder of each split.

    Raises:
        FileNotFoundError: naming the list and the line, if a story is missing.
    """
    folders = {
        split: next((raw / name for name in names if (raw / name).is_dir()), None) for split, names in splits.items()
    }
    found = {split: sorted(folder.glob("*.story")) for split, folder in folders.items() if folder is not None}
    if any(found.values()):
        return found
    for kind in _LISTS:
        lists = {
            split: sorted(path for name in names for path in raw.rglob(f"{name}.txt")) for split, names in kind.items()
        }
        if any(lists.values()):
            stories = {path.stem: path for path in raw.rglob("*.story")}
            return {split: _listed(paths, stories) for split, paths in lists.items()}
    return {}


def _listed(lists: list[Path], stories: dict[str, Path]) -> list[Path]:
    """The stories of the addresses in some lists, in their order."""
    found: dict[str, Path] = {}
    for path in lists:
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
            address = line.strip()
            if not address:
                continue
            name = address.removesuffix(".story")
            name = name if _SHA1.fullmatch(name) else hashlib.sha1(address.encode()).hexdigest()
            if name not in stories:
                raise FileNotFoundError(
                    f"{path}, line {number}: the story of {address[:80]} would be {name}.story, and there is no such "
                    "file beside the list. Unpack the stories of both newspapers into the folder of --raw."
                )
            found[name] = stories[name]
    return list(found.values())


def read_stories(files: list[Path]) -> Iterator[tuple[Path, str, list[str]]]:
    """Of each story its file, the article and the highlights.

    Raises:
        ValueError: naming the file and the byte, if it is not UTF-8.
    """
    for path in files:
        article, *highlights = read_text(path).split(_HIGHLIGHT)
        yield path, article, highlights
