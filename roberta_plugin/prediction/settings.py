"""Settings of a prediction run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Format = Literal["jsonl", "tsv", "csv", "text"]
FORMATS: tuple[Format, ...] = ("jsonl", "tsv", "csv", "text")
OnError = Literal["stop", "skip"]


@dataclass(frozen=True, kw_only=True)
class PredictSettings:
    """Settings of `predict` and `iterate_predictions`."""

    model: Path
    """Folder of a model, output folder of `roberta finetune`, or a checkpoint."""
    task_kind: str | None = None
    """A kind of `prediction/kinds`; None: the one that the model was trained for."""
    input: Path | None = None
    """File of records; None: standard input."""
    output: Path | None = None
    """File of JSON Lines, or with embeddings .npy; None: standard output."""
    format: Format | None = None
    """Form of the input; None: by the ending of its name, or by its first line."""
    text_column: str | None = None
    """Field of the text, or of the context of questions; None: that of the kind, or of the training."""
    text_pair_column: str | None = None
    """Field of the second text, or of the question."""
    id_column: str | None = None
    """Field to return as `id`; None: `id`, or that of the training; without one, answers have their line."""
    data: Path | None = None
    """Folder with dict.txt, as in `RobertaHub.from_pretrained`."""
    tokenizer: Path | None = None
    """Folder with the tokenizer's files, if it is another one."""
    head: str | None = None
    """Name of the head; None: the only one."""
    max_length: int | None = None
    """Most tokens of a sequence; None: as in training."""
    batch_tokens: int | None = None
    """Most positions of a batch, padding included; None: chosen for the device."""
    device: str | None = None
    """Device; None: a GPU if there is one."""
    on_error: OnError = "stop"
    """Treatment of a line that cannot be used: stop there, or write an entry with the error and continue."""
    top_k: int = 5
    """Answers for a mask, or candidate answers to a question."""
    pooling: Literal["mean", "first"] = "mean"
    """Pooling of an embedding: the mean over all tokens, or the features of <s>."""
    null_threshold: float | None = None
    """Probability of no answer above which a question gets none; None: the one that was tuned, or 0.5."""
    valid_sequences: bool = False
    """Whether tags are the most probable sequence among those that are valid in IOB2."""
    threshold: float | None = None
    """Probability from which a label is given, by models of several labels; None: the one that was tuned, or 0.5."""
    num_sentences: int | None = None
    """Sentences of a summary; None: 3."""
    length_share: float | None = None
    """Instead of a number of sentences: the share of a text's words that its summary has at least."""
    no_trigram_blocking: bool = False
    """Whether sentences of a summary may share three words in a row."""
    window: int = 1024
    """Records in memory at a time, which are sorted by length."""
    show_progress: bool = False
    """Whether to show progress on stderr."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: naming the option, the bad value and the remedy.
        """
        for name in ("max_length", "batch_tokens", "top_k", "window"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be 1 or more, got {value}.")
        for name in ("null_threshold", "threshold"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"--{name.replace('_', '-')} must be from 0 to 1, got {value}.")
        for name, choices in (("format", (None, *FORMATS)), ("on_error", ("stop", "skip"))):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"--{name.replace('_', '-')} must be one of {', '.join(map(str, choices))}, "
                    f"got {getattr(self, name)!r}."
                )
        if self.input is not None and self.output is not None:
            overwritten = (self.output, Path(f"{self.output}.partial"))
            if self.input.resolve() in (path.resolve() for path in overwritten):
                raise ValueError(f"--output {self.output} would overwrite the input itself: name another file.")
