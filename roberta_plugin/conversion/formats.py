"""What a format of other programs says and does: the base class of the entries of `registry.FORMATS`.

`Format` writes a folder, and says what it cannot hold. `Addition` changes a model while `roberta import` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.conversion.settings import CommonExportSettings
from roberta_plugin.registry import FORMATS


class Format:
    """A format that `roberta export --to` writes.

    The class attributes describe what its folders hold. Where they lack something, the export notes or refuses it.
    """

    name: str = ""
    """Its name for --to; `open_format` fills it in."""
    program: ClassVar[str] = ""
    """The program that opens its folders, in notes; empty: its name."""
    library: ClassVar[str] = ""
    """The library_name of a model card; empty: its name."""
    pipeline: ClassVar[str] = ""
    """The pipeline_tag of a model card; empty: that of the kind."""
    head: ClassVar[str | None] = None
    """The only value of --head; None: any."""
    what_head: ClassVar[str] = ""
    """What its folders answer with that head, in words."""
    has_segments: ClassVar[bool] = True
    """True if it can tell two texts of a pair apart by segments."""
    reads_pairs: ClassVar[bool] = True
    """True if its folders answer about pairs of texts."""
    has_tokenizer: ClassVar[bool] = True
    """True if its tokenizer is written with the white space that the model reads."""
    tokenizer: ClassVar[str] = "the exported tokenizer"
    """What turns texts into tokens, in notes."""
    has_windows: ClassVar[bool] = False
    """True if `roberta predict` reads its folders, and with them how long texts are cut."""
    has_logit_rules: ClassVar[bool] = True
    """True if it can say how a kind reads logits otherwise than by their softmax."""
    has_decisions: ClassVar[bool] = False
    """True if `roberta predict` finds in its folders the numbers by which a model decides."""
    who_decides: ClassVar[str] = "No file of this folder does that."
    """What applies these numbers, as a sentence of the model card."""
    vectors_note: ClassVar[str] = ""
    """What it writes beside an encoder that answers by vectors; empty: the encoder alone."""
    has_code: ClassVar[bool] = False
    """True if its folders may bring the code of a model."""
    mask: ClassVar[str | None] = None
    """The symbol <mask> in its texts; None: that of the exported tokenizer."""
    changes_answers: ClassVar[bool] = False
    """True if its files in a folder of Hugging Face change what transformers answers, and not what we read."""

    def check(self, model: PortableModel) -> None:
        """Refuse a model whose layers or heads it cannot express."""

    def write(self, model: PortableModel, folder: Path, settings: CommonExportSettings) -> Sequence[str]:
        """Write a model into an existing folder; return notes for the user, in sentences."""
        raise NotImplementedError

    def usage(self, model: PortableModel) -> str:
        """What a model card says of the use of a folder, which is called "FOLDER" in it."""
        raise NotImplementedError

    def read_beside(self, folder: Path) -> tuple[dict[str, Any], list[str]]:
        """What its files say of a folder of Hugging Face that has them: settings of the model, and notes."""
        return {}, []

    def compare(self, model: PortableModel, folder: Path) -> None:
        """Compare a model from such a folder with the program that wrote its files: see `comparison`."""


class Addition(Protocol):
    """Something that an option of `roberta import` adds to a model."""

    @property
    def path(self) -> Path:
        """What is read for it."""

    def add(self, model: PortableModel) -> PortableModel:
        """The model with the addition."""

    def compare(self, model: PortableModel, base: PortableModel) -> str:
        """Compare the result with another program: see `comparison.compare`."""


def formats_in(folder: Path) -> Iterator[Format]:
    """The formats that a folder has files of."""
    for name, entry in FORMATS.items():
        if any((folder / mark).is_file() for mark in entry.marks):
            yield open_format(name)


def open_format(name: str) -> Format:
    """The format of this name.

    Raises:
        ValueError: if there is none.
    """
    made: Format = FORMATS.load(name, "format")()
    made.name = name
    return made


def instead(*names: str) -> str:
    """The options to use instead of another format: these, and the formats that take layers of any kind.

    Example:
        instead("huggingface")  ->  "--to huggingface or onnx"
    """
    fitting = [*names, *(name for name, entry in FORMATS.items() if entry.takes_any_layers)]
    return f"--to {' or '.join(fitting)}" if fitting else "roberta_plugin"
