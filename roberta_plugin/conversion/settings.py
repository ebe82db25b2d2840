"""Settings of `roberta export` and `roberta import`; this module imports nothing that is slow.

Formats of extensions add their own options.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from roberta_plugin.moved import find_former_name
from roberta_plugin.option_slices import compose
from roberta_plugin.registry import EXPORT_OPTIONS, FORMATS, IMPORT_OPTIONS
from roberta_plugin.settings import REQUIRED, Checked, setting

if TYPE_CHECKING:
    from roberta_plugin.conversion.portable import PortableModel

Layout = Literal["today", "2019"]
RECORD = "conversion.json"
_FAIRSEQ = {"to": ("fairseq",)}


@dataclass(frozen=True, kw_only=True)
class CommonExportSettings(Checked):
    """Settings of `convert.export_model`, without the options of extensions."""

    checkpoint: Path = setting(
        REQUIRED,
        "a checkpoint (.pt), the folder of one, the --output-dir of `roberta finetune`, whose best run is used, or a "
        "model's name (org/name)",
        flag="checkpoint",
    )
    to: str = setting(REQUIRED, "the format to write", choices=lambda: tuple(FORMATS))
    output_dir: Path = setting(REQUIRED, "a new or empty folder, or an earlier export")
    data: Path | None = setting(None, "folder with dict.txt and the tokenizer, if they are not found")
    tokenizer: Path | None = setting(
        None,
        "folder with the tokenizer's files, if they are not found; or whitespace: the symbols of dict.txt are the "
        "words of the text",
    )
    head: str | None = setting(
        None, "the head to export, or encoder for vectors of texts (default: the fine-tuned one, else masked_lm)"
    )
    labels: tuple[str, ...] | None = setting(
        None, "names of the classes, if the checkpoint has none", nargs="+", metavar="NAME"
    )
    layout: Layout = setting("today", "fairseq: parameter names of today or of 2019", goes_with=_FAIRSEQ)
    half: bool = setting(False, "fairseq: store 16-bit numbers, as the released models do", goes_with=_FAIRSEQ)
    license: str | None = setting(None, "licence for the model card, such as mit")
    language: tuple[str, ...] = setting(
        (), "languages of the texts for the model card, such as en, or multilingual", nargs="+", metavar="CODE"
    )
    push: str | None = setting(
        None,
        "also upload the folder to this model of the Hugging Face hub, which is created if necessary; the token comes "
        "from `hf auth login` or HF_TOKEN",
        metavar="ORG/NAME[@BRANCH]",
    )
    private: bool = setting(False, "push: only you and your organization may see the model", goes_with={"push": ()})
    max_shard_bytes: int = 5 * 10**9  # the limit of transformers
    """Most bytes of one file of weights (huggingface)."""


class Addition(Protocol):
    """Something that an option of `roberta import` adds to the model."""

    @property
    def path(self) -> Path:
        """The file or folder that is added."""

    def add(self, model: PortableModel) -> PortableModel:
        """The model with the addition."""

    def compare(self, model: PortableModel, base: PortableModel) -> str:
        """Compare the result with another program: see `comparison.compare`."""


class ImportOptions:
    """The base of the options of `roberta import`, options of extensions included."""

    def additions(self) -> list[Addition]:
        """The additions to the model that options of extensions ask for. Overriding methods call `super()`."""
        return []


@dataclass(frozen=True, kw_only=True)
class CommonImportSettings(ImportOptions):
    """Settings of `convert.import_model`, without the options of extensions."""

    source: Path = setting(
        REQUIRED,
        "a folder of Hugging Face (RoBERTa, XLM-R, CamemBERT, ModernBERT), an archive of fairseq (.tar.gz), a "
        "checkpoint; or a name: org/name of the Hugging Face hub, or roberta.base and similar",
        flag="source",
    )
    output_dir: Path = setting(REQUIRED, "a new or empty folder, or an earlier import")
    data: Path | None = setting(None, "folder with dict.txt and the tokenizer, if the source has none")
    tokenizer: Path | None = setting(
        None,
        "folder with the tokenizer's files, if the source has none; or whitespace: the symbols of dict.txt are the "
        "words of the text",
    )
    allow_pickle: bool = setting(
        False, "org/name: use pytorch_model.bin if there is no safetensors file; its code does not run"
    )
    labels: tuple[str, ...] | None = setting(
        None, "names of the classes, if the source has none", nargs="+", metavar="NAME"
    )
    no_comparison: bool = setting(
        False,
        "import a folder of Hugging Face without comparing tokens and answers with transformers (by default they are "
        "compared if it is installed)",
    )


def __getattr__(name: str) -> Any:
    """`ExportSettings` and `ImportSettings`: the common ones with the options of all extensions; former names."""
    if name == "ExportSettings":
        return compose(CommonExportSettings, EXPORT_OPTIONS, name=name, module=__name__)
    if name == "ImportSettings":
        return compose(CommonImportSettings, IMPORT_OPTIONS, name=name, module=__name__)
    return find_former_name(__name__, name)
