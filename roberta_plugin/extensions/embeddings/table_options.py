"""Options of tables of texts that get vectors, and of predictions."""

from __future__ import annotations

from argparse import BooleanOptionalAction
from dataclasses import dataclass
from typing import Literal

from roberta_plugin.finetuning.options import TaskOptions, of_kinds, option, set_texts
from roberta_plugin.settings import Checked, setting


@dataclass(frozen=True, kw_only=True)
class EmbeddingTableOptions(TaskOptions):
    """Options of `roberta prepare custom`."""

    negative_column: tuple[str, ...] | None = option(
        "embedding: columns of texts that are wrong for the text of --text-column",
        goes_with=of_kinds("embedding"),
        metavar="COLUMN",
        nargs="+",
    )
    embedding_loss: str | None = option(
        "embedding: what is learned",
        default_text="simcse from texts, multiple-negatives-ranking from pairs and wrong texts, cosine-similarity from "
        "pairs with a --label-column",
        goes_with=of_kinds("embedding"),
        choices=("multiple-negatives-ranking", "triplet", "cosine-similarity", "simcse"),
    )
    score_range: tuple[float, ...] | None = option(
        "embedding: lowest and highest score of --label-column",
        default_text="0 1",
        goes_with=of_kinds("embedding"),
        metavar="NUMBER",
        nargs=2,
    )
    pooling: str | None = option(
        "embedding: the mean of all tokens, the features of <s>, or the largest values",
        default_text="as the model that is fine-tuned, else mean",
        goes_with=of_kinds("embedding"),
        choices=("mean", "first", "max"),
    )
    normalize: bool | None = option(
        "embedding: give vectors the length 1, or keep their lengths",
        default_text="as the model that is fine-tuned, else keep",
        goes_with=of_kinds("embedding"),
        action=BooleanOptionalAction,
    )

    def __post_init__(self) -> None:
        """Check the values."""
        set_texts(self, "negative_column")
        super().__post_init__()
        if self.score_range is not None and not self.score_range[0] < self.score_range[1]:
            raise ValueError(
                f"--score-range {self.score_range[0]:g} {self.score_range[1]:g}: give the lowest score first, then the "
                "highest."
            )


@dataclass(frozen=True, kw_only=True)
class EmbeddingPredictOptions(Checked):
    """Options of `roberta predict`."""

    pooling: Literal["mean", "first", "max"] | None = setting(
        None,
        "embeddings: the mean over all tokens, the features of <s>, or the largest values (default: as in training, "
        "or mean)",
    )
    normalize: bool = setting(False, "embeddings: give vectors the length 1, if they do not have it from training")
    prompt_name: str | None = setting(
        None,
        "embeddings: which of the model's prompts to put in front of each text, such as query (default: the model's "
        "own default, or none)",
        metavar="NAME",
    )
