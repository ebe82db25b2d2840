"""Formats of other programs: the base class of the entries of `registry.FORMATS`.

A `Format` writes a folder, and declares the parts of a model that it does not support.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.conversion.settings import CommonExportSettings
from roberta_plugin.moved import find_former_name
from roberta_plugin.registry import FORMATS


class Format:
    """A format that `roberta export --to` writes.

    The class attributes describe its folders. The export notes or refuses parts of a model that they cannot hold.
    """

    name: str = ""
    """Its name for --to; `open_format` fills it in."""
    program: ClassVar[str] = ""
    """The program that opens its folders, in notes; empty: its name."""
    library: ClassVar[str] = ""
    """The library_name of a model card; empty: its name."""
    pipeline: ClassVar[str] = ""
    """The pipeline_tag of a model card; empty: the tag of the kind."""
    head: ClassVar[str | None] = None
    """The only value of --head; None: any."""
    what_head: ClassVar[str] = ""
    """The outputs of its folders with that head, in words."""
    has_segments: ClassVar[bool] = True
    """True if it can tell two texts of a pair apart by segments."""
    reads_pairs: ClassVar[bool] = True
    """True if its folders can be used with pairs of texts."""
    has_tokenizer: ClassVar[bool] = True
    """True if its tokenizer is written with the white space that the model reads."""
    tokenizer: ClassVar[str] = "the exported tokenizer"
    """The tokenizer that the other program uses, in words, for notes."""
    has_windows: ClassVar[bool] = False
    """True if `roberta predict` reads its folders, which say how long texts are cut."""
    has_logit_rules: ClassVar[bool] = True
    """True if it can express that a kind reads logits in another way than by their softmax."""
    has_decisions: ClassVar[bool] = False
    """True if `roberta predict` finds the numbers by which a model decides in its folders."""
    who_decides: ClassVar[str] = "No file of this folder does that."
    """A sentence of the model card on the programs that apply these numbers."""
    vectors_note: ClassVar[str] = ""
    """A note on parts that it writes beside an encoder for vectors; empty: it writes only the encoder."""
    has_code: ClassVar[bool] = False
    """True if its folders may contain the code of a model."""
    mask: ClassVar[str | None] = None
    """The symbol <mask> in its texts; None: as in the exported tokenizer."""
    changes_answers: ClassVar[bool] = False
    """True if its files in a folder of Hugging Face change the answers of transformers, but not ours."""

    def check(self, model: PortableModel) -> None:
        """Refuse a model whose layers or heads it cannot express."""

    def write(self, model: PortableModel, folder: Path, settings: CommonExportSettings) -> Sequence[str]:
        """Write a model into an existing folder; return notes for the user, in sentences."""
        raise NotImplementedError

    def usage(self, model: PortableModel) -> str:
        """The section of a model card on how to use a folder, which it calls "FOLDER"."""
        raise NotImplementedError

    def read_beside(self, folder: Path) -> tuple[dict[str, Any], list[str]]:
        """Settings of the model, and notes, from its files in a folder of Hugging Face."""
        return {}, []

    def compare(self, model: PortableModel, folder: Path) -> None:
        """Compare a model from such a folder with the program of the format: see `comparison`."""


def formats_in(folder: Path) -> Iterator[Format]:
    """The formats whose files are in a folder."""
    for name, entry in FORMATS.items():
        if any((folder / mark).is_file() for mark in entry.marks):
            yield open_format(name)


def open_format(name: str) -> Format:
    """The format of this name.

    Raises:
        ValueError: if there is no such format.
    """
    made: Format = FORMATS.load(name, "format")()
    made.name = name
    return made


def instead(*names: str) -> str:
    """The options to use instead of another format: these formats, and all formats that support any layers.

    Example:
        instead("huggingface")  ->  "--to huggingface or onnx"
    """
    fitting = [*names, *(name for name, entry in FORMATS.items() if entry.takes_any_layers)]
    return f"--to {' or '.join(fitting)}" if fitting else "roberta_plugin"


def __getattr__(name: str) -> Any:
    """Former names."""
    return find_former_name(__name__, name)
