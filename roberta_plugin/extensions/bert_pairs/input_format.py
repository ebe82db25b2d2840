"""The interface of pairs for the pretraining task: their files, batches, segments and second task."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from roberta_plugin.data.block_dataset import BlockDataset
from roberta_plugin.data.dynamic_masking import Masker
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.extensions.bert_pairs.head import NextSentenceHead
from roberta_plugin.extensions.bert_pairs.pair_chunks import Targets, open_chunks
from roberta_plugin.extensions.bert_pairs.pair_dataset import PairDataset
from roberta_plugin.extensions.bert_pairs.pairs import NUM_SPECIALS, PairSource
from roberta_plugin.models.heads import SequenceHead
from roberta_plugin.tasks.input_formats import InputFormat

logger = logging.getLogger(__name__)

MANY_TOKENS_A_LINE = 64  # sentences of English have 20 to 30


class PairFormat(InputFormat):
    """`<s> A </s></s> B </s>`. In half of the pairs, B follows A."""

    @classmethod
    def check(cls, name: str | None, cfg: Any) -> None:
        """Refuse blocks that are too short for a pair, and options that only blocks have."""
        super().check(name, cfg)
        if cfg.tokens_per_sample < NUM_SPECIALS + 2:
            raise ValueError(
                f"--tokens-per-sample must be at least {NUM_SPECIALS + 2} for pairs (<s> A </s></s> B </s>), got "
                f"{cfg.tokens_per_sample}."
            )

    @property
    def num_segments(self) -> int:  # type: ignore[override]
        """Two, unless the options leave them out."""
        return 0 if self.cfg.no_segment_embeddings else 2

    @property
    def sequence_heads(self) -> Mapping[str, type[SequenceHead]]:  # type: ignore[override]
        """The head of next-sentence prediction, if the options ask for it."""
        return {"next_sentence_head": NextSentenceHead} if self.cfg.next_sentence_prediction else {}

    def check_criterion(self, name: str | None) -> None:
        """Refuse fairseq's criterion beside next-sentence prediction."""
        if name == "masked_lm" and self.cfg.next_sentence_prediction:
            raise ValueError(
                "--next-sentence-prediction needs --criterion roberta_masked_lm: masked_lm has no loss for it."
            )

    def check_model(self, model: Any) -> None:
        """Refuse a model of fairseq for segments and the second task."""
        if (self.num_segments or self.sequence_heads) and not getattr(model, "supports_sequence_heads", False):
            raise ValueError(
                f"{type(model).__name__} has neither segment embeddings nor a head for next-sentence prediction: use "
                "--arch fast_roberta_base (or another size of fast_roberta), or train on pairs with "
                "--no-segment-embeddings and without --next-sentence-prediction."
            )

    def open(self, tokens: MmapTokens, *, tokens_per_sample: int) -> PairSource:
        """The pairs of one .bin file; logs their number, and warns of lines that do not look like sentences."""
        targets = Targets(tokens_per_sample - NUM_SPECIALS, self.cfg.short_seq_prob)
        source = PairSource(tokens, open_chunks(tokens, pair_format=self.name, targets=targets))  # type: ignore[arg-type]
        describe(source)
        return source

    def num_blocks(self, source: PairSource) -> int:
        """Pairs of one .bin file."""
        return len(source)

    def dataset(
        self, sources: Sequence[PairSource], masker: Masker, *, vocabulary: Vocabulary, **options: Any
    ) -> BlockDataset:
        """The masked batches of all pairs."""
        return PairDataset(
            sources,
            masker,
            eos_id=vocabulary.eos_id,
            with_segments=bool(self.num_segments),
            with_next_sentence=bool(self.sequence_heads),
            **options,
        )


def describe(source: PairSource) -> None:
    """Log the number of pairs, and warn of lines that do not look like sentences of documents."""
    counts, prefix, targets = source.chunks.counts, source.tokens.prefix, source.chunks.targets
    logger.info(
        f"{prefix}: {counts.num_sentences:,} sentences of {counts.num_tokens:,} tokens in "
        f"{len(source.chunks.documents):,} documents: {len(source):,} pairs, {source.num_following:,} consecutive"
    )
    if counts.num_single_documents or counts.num_empty_documents:
        logger.info(
            f"{prefix}: {counts.num_single_documents:,} documents are one sentence, which is only paired with other "
            f"documents; {counts.num_empty_documents:,} are empty and left out"
        )
    if counts.num_long_sentences:
        logger.info(
            f"{prefix}: {counts.num_long_sentences:,} sentences are longer than the {targets.longest} tokens of a "
            "pair: each is cut at random every time"
        )
    if 2 * source.num_following < len(source) - 2:
        too_many = "documents are one line. Binarize"
        if counts.num_long_sentences > counts.num_single_documents:
            too_many = "lines fill a pair alone. Raise --tokens-per-sample, or, if lines are paragraphs, binarize"
        logger.warning(
            f"{prefix}: only {source.num_following / len(source):.1%} of the pairs are consecutive, not half: too many "
            f"{too_many} the text with `roberta binarize --split-sentences`"
        )
    elif counts.num_tokens > MANY_TOKENS_A_LINE * counts.num_sentences:
        logger.warning(
            f"{prefix}: a line has {counts.num_tokens / counts.num_sentences:.0f} tokens on average, more than a "
            "sentence; if lines are paragraphs, binarize the text with `roberta binarize --split-sentences`"
        )
