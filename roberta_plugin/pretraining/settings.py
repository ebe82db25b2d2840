"""The options of `roberta pretrain`, besides fairseq-train's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path

from roberta_plugin.data.mixture import data_folders
from roberta_plugin.data.text_inputs import InputSettings
from roberta_plugin.data.text_inputs_files import STANDARD_INPUT
from roberta_plugin.data.text_inputs_remote import is_url
from roberta_plugin.data.tokenizers.whitespace import is_meant
from roberta_plugin.settings import REQUIRED, Checked, setting


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(Checked):
    """The fields are options of `roberta pretrain`."""

    data: Sequence[str] = setting(
        REQUIRED,
        "folder made by `roberta binarize` or fairseq-preprocess (or several, as A,B); or text files, from which a "
        "tokenizer and a data-bin are built first",
        flag="data",
        nargs="+",
        metavar="DATA",
    )
    recipe: str | None = setting(
        None,
        "name of a recipe (`roberta recipes` lists them), or a YAML file",
        default_text="chosen by machine and hours",
    )
    hours: float | None = setting(
        None,
        "how long the training may take: the recipe's updates are scaled to it",
        above=0,
        default_text="the recipe's",
    )
    updates: int | None = setting(
        None,
        "how long the training is, in updates instead of --hours",
        smallest=20,
        excludes=("hours",),
        default_text="the recipe's",
    )
    without: Sequence[str] = setting(
        (),
        "options of the recipe to leave out, such as qk-norm position-encoding",
        nargs="+",
        action="extend",
        metavar="OPTION",
    )
    output_dir: Path | None = setting(None, "folder for all files of the run", default_text="runs/ and the data's name")
    valid: Sequence[str] = setting(
        (),
        "with text files: held-out text",
        nargs="+",
        action="extend",
        default_text="one document in fifty, held out of the training",
        road="text",
    )
    test: Sequence[str] = setting(
        (),
        "with text files: text for the scores at the end",
        nargs="+",
        action="extend",
        default_text="the validation's",
        road="text",
    )
    tokenizer: Path | None = setting(
        None,
        "with text files: a tokenizer's folder; or whitespace: the words of the text, or the symbols of the model's "
        "dict.txt",
        default_text="one is trained",
        gives="tokenizer",
        road="text",
    )
    vocab_size: int | None = setting(
        None,
        "symbols of the tokenizer that is trained",
        smallest=300,
        default_text="by the size of the text",
        excludes=("tokenizer",),
        road="text",
    )
    slurm: Mapping[str, str] | None = setting(
        None,
        "submit the training as a job of SLURM: nodes=4 partition=gpu time=1-00:00:00, any option of `roberta launch`. "
        "The same command resumes it, and shows the results at its end",
        nargs="*",
        metavar="NAME=VALUE",
        goes_with={"recipe": ()},
    )
    dry_run: bool = setting(
        False, "show the recipe, the command of fairseq-train and an estimate of FLOPs, hours and memory; train nothing"
    )
    reading: InputSettings = InputSettings()  # how the text is read

    @property
    def is_text(self) -> bool:
        """True if the data are text: files, patterns, URLs, pipes, and data sets that the library datasets saved.

        Otherwise they are folders of `roberta binarize`, of which several may be given in one word: `books@3,news@1`.
        """
        first = self.data[0]
        if len(self.data) > 1 or first == STANDARD_INPUT or is_url(first) or has_magic(first):
            return True
        path = Path(first)
        if path.is_dir():
            return any((path / name).is_file() for name in ("state.json", "dataset_dict.json"))
        # A name that does not exist counts as text, whose message names it, unless all folders of a mixture exist.
        return path.exists() or not all(folder.is_dir() for folder in data_folders(first))

    @property
    def makes_tokenizer(self) -> bool:
        """True if the tokenizer is made from the text."""
        return self.tokenizer is None or is_meant(self.tokenizer)

    @property
    def folder(self) -> Path:
        """Where the files of the run go."""
        if self.output_dir is not None:  # the record of a path with `..` could not be followed after a move
            return self.output_dir.resolve() if ".." in self.output_dir.parts else self.output_dir.absolute()
        first = self.data[0] if Path(self.data[0]).exists() else re.split(r"[,@]|:(?!//)", self.data[0])[0]
        names = [part.split(".")[0] for part in Path(first).absolute().parts]
        plain = (name for name in reversed(names) if name and not has_magic(name) and name not in ("-", "/"))
        return (Path("runs") / re.sub(r"[,:@\s]+", "-", next(plain, "text"))).absolute()
