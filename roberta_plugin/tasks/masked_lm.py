"""Pretraining task: vocabulary and masked-LM datasets from fairseq's binarized data.

The steps from a data-bin folder to batches are drawn in `roberta_plugin/data/__init__.py`; this file only wires them
to fairseq, whose words (dictionary, dataset split, epoch iterator) appear here and nowhere below.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary
from fairseq.tasks import register_task

from roberta_plugin.data.block_tables import open_blocks
from roberta_plugin.data.dynamic_masking import Masker
from roberta_plugin.data.masked_lm_dataset import MaskedLMDataset, Source
from roberta_plugin.data.mixture import Corpus, blocks_to_take, parse_turns, share_out
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary

from .block_task import BlockTask, load_vocabulary
from .masked_lm_options import RobertaMaskedLMConfig, check_config, check_positions, check_same_vocabulary

logger = logging.getLogger(__name__)


@register_task("roberta_masked_lm", dataclass=RobertaMaskedLMConfig)
class RobertaMaskedLMTask(BlockTask):
    """Masked-LM pretraining; drives our models and fairseq's own `--arch roberta_base`."""

    cfg: RobertaMaskedLMConfig

    def __init__(self, cfg: RobertaMaskedLMConfig, dictionary: Dictionary, vocabulary: Vocabulary) -> None:
        super().__init__(cfg, dictionary, vocabulary)
        self.recipe = check_config(cfg)

    @classmethod
    def setup_task(cls, cfg: RobertaMaskedLMConfig, **kwargs: Any) -> RobertaMaskedLMTask:
        """Check the options and load the vocabulary, which all data folders must share."""
        check_config(cfg)
        folders = [Path(corpus.folder) for turn in parse_turns(cfg.data) for corpus in turn]
        dictionary, vocabulary = load_vocabulary(folders[0])
        check_same_vocabulary(folders)
        return cls(cfg, dictionary, vocabulary)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model, and refuse one that would attend across the sequences of a packed row."""
        model = super().build_model(cfg, from_checkpoint)
        if self.cfg.pack_sequences and not getattr(model, "supports_packing", False):
            raise ValueError(
                f"--pack-sequences needs a model that keeps sequences apart, and {type(model).__name__} does not: use "
                "--arch fast_roberta_base (or another size of fast_roberta), or leave --pack-sequences out."
            )
        return model

    def build_masker(self) -> Masker:
        """The masking function for this vocabulary and these options."""
        word_starts = None
        if self.cfg.mask_whole_words:
            folder = Path(self.cfg.tokenizer_folder or parse_turns(self.cfg.data)[0][0].folder)
            word_starts = self.vocabulary.word_starts(load_tokenizer(folder))
        return Masker.of(self.vocabulary, self.recipe, word_starts=word_starts)

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load the split of the folders whose turn it is in `epoch` (1-based).

        With `combine`, which fairseq sets for training, {split}1, {split}2, ... beside {split} are added to it, and
        corpora get their shares; all blocks of all corpora are taken without it.
        """
        turns = parse_turns(self.cfg.data)
        turn = (epoch - 1) % len(turns)
        files = [
            [self.open(prefix) for prefix in split_prefixes(os.path.join(corpus.folder, split), combine=combine)]
            for corpus in turns[turn]
        ]
        self.datasets[split] = MaskedLMDataset(
            [source for sources in files for source in sources],
            self.build_masker(),
            bos_id=self.vocabulary.bos_id,
            pad_id=self.vocabulary.pad_id,
            vocab_size=len(self.vocabulary),
            seed=self.cfg.seed,
            counts=self.counts(turns[turn], files) if combine and len(turns[turn]) > 1 else None,
            shard=turn,
            num_shards=len(turns),
            pad_to_multiple=self.cfg.pad_to_multiple,
            pack=self.cfg.pack_sequences,
            max_length=self.cfg.tokens_per_sample,
        )

    def open(self, prefix: str) -> Source:
        """Open one .bin file, cut it into blocks, and say what was cut."""
        tokens = MmapTokens(prefix)
        blocks = open_blocks(
            tokens,
            block_length=self.cfg.tokens_per_sample - 1,  # one less, for <s>
            break_mode=str(self.cfg.sample_break_mode),  # type: ignore[arg-type]
        )
        logger.info(f"{prefix}: {len(tokens):,} lines, {tokens.num_tokens:,} tokens, {len(blocks):,} blocks")
        if blocks.num_split:
            logger.info(
                f"{prefix}: {blocks.num_split:,} lines were longer than --tokens-per-sample "
                f"{self.cfg.tokens_per_sample} and were split; nothing was dropped"
            )
        return Source(tokens, blocks)

    def counts(self, corpora: Sequence[Corpus], files: Sequence[Sequence[Source]]) -> list[int]:
        """Blocks that an epoch takes from each file; says what share each corpus gets."""
        sizes = [[len(source.blocks) for source in sources] for sources in files]
        weights = [corpus.weight for corpus in corpora if corpus.weight is not None]
        taken = blocks_to_take([sum(size) for size in sizes], weights=weights or None, alpha=self.cfg.corpus_alpha)
        for corpus, count, size in zip(corpora, taken, sizes, strict=True):
            logger.info(
                f"{corpus.folder}: {count:,} of its {sum(size):,} blocks an epoch, "
                f"{100 * count / sum(taken):.4f} % of the training data"
            )
        return [part for count, size in zip(taken, sizes, strict=True) for part in share_out(count, size)]

    def check_limits(self, *, max_positions: int | None, max_tokens: int | None) -> None:
        """Refuse blocks that can be longer than the model's positions or than --max-tokens."""
        check_positions(self.cfg.tokens_per_sample, max_positions=max_positions, max_tokens=max_tokens)

    def max_positions(self) -> int:
        """Tokens in a block at most; models without --max-positions take their number of positions from here."""
        return int(self.cfg.tokens_per_sample)


def split_prefixes(prefix: str, *, combine: bool) -> list[str]:
    """`prefix` alone or, with `combine`, also `prefix`1, `prefix`2, ... as far as such files exist."""
    prefixes = [prefix]
    while combine and os.path.exists(f"{prefix}{len(prefixes)}.idx"):
        prefixes.append(f"{prefix}{len(prefixes)}")
    return prefixes
