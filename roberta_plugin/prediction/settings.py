"""Settings of a prediction run; those that only some kinds have come from their extensions (`option_slices.py`)."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from roberta_plugin.finetuning.kinds import option_words, task_kinds
from roberta_plugin.machine import Precision
from roberta_plugin.option_slices import compose
from roberta_plugin.registry import PREDICT_OPTIONS
from roberta_plugin.settings import REQUIRED, Checked, check_roads, setting
from roberta_plugin.tables import Format, separator

OnError = Literal["stop", "skip"]


@dataclass(frozen=True, kw_only=True)
class CommonPredictSettings(Checked):
    """Settings of `predict` and `iterate_predictions` that models of all kinds have."""

    model: Path = setting(
        REQUIRED,
        "folder of a model, output folder of `roberta finetune`, a checkpoint, or a name: org/name of the Hugging Face "
        "hub, or roberta.large.mnli and similar",
        flag="model",
        metavar="model",
    )
    texts: tuple[str, ...] = setting(
        (), "texts to answer, instead of --input", flag="texts", metavar="TEXT", nargs="*", excludes=("input",)
    )
    task_kind: str | None = setting(None, "what to predict (default: the model's own task)", choices=task_kinds)
    input: Path | None = setting(
        None,
        "records, plain or compressed (.gz, .zst, .xz, .bz2), or a URL; - is standard input (default)",
        metavar="FILE",
    )
    output: Path | None = setting(
        None,
        "answers; - is standard output (default). The name says the format: .jsonl, .csv, .tsv or .parquet",
        metavar="FILE",
    )
    format: Format | None = setting(None, "format of the input (default: by its name, or first line)", road="file")
    delimiter: str | None = setting(
        None,
        "separator of the columns of CSV, such as ';' or '\\t' (default: as in training, or a comma)",
        metavar="CHARACTER",
        road="file",
    )
    text_column: str | None = setting(
        None,
        "column or field of the text (default: as in training, or as below)",
        metavar="COLUMN",
    )
    text_pair_column: str | None = setting(
        None, "column or field of the second text (default: as in training, or as below)", metavar="COLUMN"
    )
    id_column: str | None = setting(
        None,
        "column or field that each answer repeats as id (id; without one: the number of the line)",
        metavar="COLUMN",
    )
    data: Path | None = setting(None, "folder with dict.txt, if it is not the model's")
    tokenizer: Path | None = setting(
        None,
        "folder with the tokenizer's files, if it is not the model's; or whitespace: the symbols of dict.txt are "
        "the words of the text",
    )
    head: str | None = setting(None, "name of the head, if the model has several")
    top_k: int = setting(5, ", ".join(option_words("top_k").values()) or "answers for each text", smallest=1)
    max_length: int | None = setting(None, "maximum tokens of a sequence", default_text="as in training", smallest=6)
    batch_tokens: int | None = setting(
        None,
        "maximum positions of a batch, padding included",
        default_text="2048 on a CPU, 32768 on a GPU",
        smallest=1,
    )
    device: str | None = setting(None, "where to compute (default: a GPU if there is one)")
    precision: Precision = setting("fp32", "for matrix products: bf16 and int8 are faster where the processor has them")
    on_error: OnError = setting(
        "stop", "at a bad line: stop, or skip it: write an entry with its number and the error, and continue"
    )
    window: int = dataclasses.field(default=1024, metadata={"smallest": 1})
    """Records in memory at a time, which are sorted by length."""
    show_progress: bool = setting(False, "show no progress on stderr", flag="--no-progress", action="store_false")
    """Programs have to ask for progress; the command shows it by default."""

    def __post_init__(self) -> None:
        """Check the values, and that the output is not the input."""
        super().__post_init__()
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", separator(self.delimiter))
        if self.texts:
            check_roads(self, {"file": "with texts on the command line, which are one text each"})
            file = next((text for text in self.texts if os.path.isfile(text)), None)
            if file is not None:
                raise ValueError(
                    f"{file} is a file, but arguments after the model are texts: give --input {file} to read it."
                )
        if self.input is not None and self.output is not None:
            overwritten = (self.output, Path(f"{self.output}.partial"))
            if self.input.resolve() in (path.resolve() for path in overwritten):
                raise ValueError(f"--output {self.output} would overwrite the input itself: name another file.")


def __getattr__(name: str) -> Any:
    """`PredictSettings`: `CommonPredictSettings` with the options of all extensions."""
    if name == "PredictSettings":
        return compose(CommonPredictSettings, PREDICT_OPTIONS, name=name, module=__name__)
    raise AttributeError(f"{__name__} has no {name}")
