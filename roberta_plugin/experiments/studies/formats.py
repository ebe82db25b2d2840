"""Does the data have what an input format is made of: documents, and sentences? Looked at before anything is read."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.training import arguments as train_arguments

_LINES = 500_000  # of a split, from its beginning: enough to see whether it has documents and sentences
_BY_DOCUMENT = ("complete_doc", "doc-sentences", "segment-pair", "sentence-pair")
_BY_PAIR = ("segment-pair", "sentence-pair")
_LEAST_SENTENCES = 1.5  # lines in a document on average: below it, a line is a document


class Structure(NamedTuple):
    """What the lines of a split are."""

    num_lines: int
    """Without blank ones."""
    num_documents: int


def structure_of(sizes: Sequence[int] | np.ndarray[tuple[int], np.dtype[np.int32]]) -> Structure:
    """Lines and documents by the tokens of each line (n,): a blank line, which ends a document, is </s> alone.

    Example:
        structure_of([5, 7, 1, 4, 1])  ->  Structure(num_lines=3, num_documents=2)
    """
    is_blank = np.asarray(sizes) == 1
    starts = ~is_blank & np.concatenate([[True], is_blank[:-1]])
    return Structure(int((~is_blank).sum()), int(starts.sum()))


def check_format(parsed: Namespace, *, variant: str) -> None:
    """Refuse a format of documents or pairs for data without them.

    Args:
        parsed: fairseq's options of the variant; its data is there.
        variant: its name, for messages.

    Raises:
        ValueError: naming the variant, the format and the folder.
    """
    input_format = str(getattr(parsed, "input_format", None) or parsed.sample_break_mode)
    if input_format not in _BY_DOCUMENT:
        return
    for folder in train_arguments.data_folders(parsed):
        found = structure_of(np.asarray(MmapTokens(folder / parsed.train_subset).sizes[:_LINES]))
        if found.num_documents < 2:
            raise ValueError(
                f"The variant {variant} has the input format {input_format}, and {folder} has no document boundaries: "
                "binarize text with a blank line between documents, or with --blank-line-after-files."
            )
        if input_format in _BY_PAIR and found.num_lines < _LEAST_SENTENCES * found.num_documents:
            raise ValueError(
                f"The variant {variant} has the input format {input_format}, and the documents of {folder} are not "
                f"split into sentences ({found.num_lines:,} lines in {found.num_documents:,} documents): binarize "
                "with one sentence a line."
            )
        if input_format in _BY_PAIR:
            _check_validation(parsed, folder, variant=f"The variant {variant} has the input format {input_format}")


def _check_validation(parsed: Namespace, folder: Path, *, variant: str) -> None:
    """Refuse a validation split of which no pairs can be made: every run would end at its start."""
    for split in str(parsed.valid_subset).split(","):
        if not (folder / f"{split}.idx").is_file():
            continue
        found = structure_of(np.asarray(MmapTokens(folder / split).sizes[:_LINES]))
        if found.num_documents < 2 or found.num_lines == found.num_documents:
            raise ValueError(
                f"{variant}, and the split {split} of {folder} has {found.num_lines:,} lines in "
                f"{found.num_documents:,} documents: pairs need several documents, and documents of several sentences, "
                "one a line. Binarize it with a blank line between documents and with --split-sentences."
            )
