"""GPT-2's two files, encoder.json and vocab.bpe, which fairseq's released archives lack.

fairseq downloads them into its cache when a model is first used; so does this file, through the same cache.
"""

from __future__ import annotations

from pathlib import Path

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
from fairseq import file_utils

from roberta_plugin.data.tokenizers.byte_level_bpe import FILES, ByteLevelBpe, read_files

URL = "https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe"


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
            found.append(Path(file_utils.cached_path(f"{URL}/{name}")))
        except (OSError, ValueError, TypeError) as error:  # no network and not in the cache, which raises any of these
            raise FileNotFoundError(
                f"{folder} has no tokenizer: fairseq's archives lack GPT-2's encoder.json and vocab.bpe, and {name} "
                f"could not be downloaded ({type(error).__name__}). Download {URL}/encoder.json and {URL}/vocab.bpe "
                "on a machine that can, and put both beside the unpacked model.pt and dict.txt; or give a folder with "
                "these two and dict.txt as --data."
            ) from error
    return read_files(*found)
