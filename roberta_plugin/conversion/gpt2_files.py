"""GPT-2's two files, encoder.json and vocab.bpe, which fairseq's released archives lack.

fairseq downloads them into its cache when a model is first used. This file looks into the same cache, and otherwise
downloads them into it, without the packages that fairseq's own download needs.
"""

from __future__ import annotations

import os
import shutil
import urllib.request
from pathlib import Path

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
from fairseq import file_utils

from roberta_plugin.conversion.run_folders import GPT2_FILES
from roberta_plugin.data.manifest import sha256_of_file
from roberta_plugin.data.tokenizers.byte_level_bpe import FILES, ByteLevelBpe, read_files
from roberta_plugin.files import atomic_write

SHA256 = {
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
_SECONDS = 30.0  # without an answer


def gpt2_tokenizer(folder: Path) -> ByteLevelBpe:
    """The tokenizer of fairseq's released models.

    Args:
        folder: where the model is, for the message.

    Raises:
        FileNotFoundError: if the files are neither in fairseq's cache nor can be downloaded; names both.
    """
    found: list[Path] = []
    for name in FILES:
        try:
            found.append(cached(name) or _download(name))
        except (OSError, ValueError) as error:  # no network, a cache that cannot be written, another file there
            raise FileNotFoundError(
                f"{folder} has no tokenizer: fairseq's archives lack GPT-2's encoder.json and vocab.bpe, and {name} "
                f"could not be downloaded ({error}). Download {GPT2_FILES}/encoder.json and {GPT2_FILES}/vocab.bpe "
                "on a machine that can, and put both beside the unpacked model.pt and dict.txt; or give a folder with "
                "these two and dict.txt as --data."
            ) from error
    return read_files(*found)


def cached(name: str) -> Path | None:
    """One of the two files in fairseq's cache; None if the cache has no undamaged one."""
    folder = _cache()
    if not folder.is_dir():
        return None
    # fairseq appends the ETag of the server's answer, and writes a .json with the address beside each file.
    for path in sorted(folder.glob(f"{file_utils.url_to_filename(f'{GPT2_FILES}/{name}')}*")):
        if path.suffix != ".json" and path.is_file() and sha256_of_file(path) == SHA256[name]:
            return path
    return None


def _download(name: str) -> Path:
    folder = _cache()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / str(file_utils.url_to_filename(f"{GPT2_FILES}/{name}"))
    with urllib.request.urlopen(f"{GPT2_FILES}/{name}", timeout=_SECONDS) as answer, atomic_write(path) as file:
        shutil.copyfileobj(answer, file)
    if sha256_of_file(path) != SHA256[name]:
        path.unlink()
        raise ValueError("the answer of the server is another file")
    return path


def _cache() -> Path:
    return Path(os.fspath(file_utils.PYTORCH_FAIRSEQ_CACHE))
