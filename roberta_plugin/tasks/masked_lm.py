"""Pretraining task: vocabulary and masked-LM datasets from fairseq's binarized data.

The steps from a data-bin folder to batches are drawn in `roberta_plugin/data/__init__.py`; this file only wires them
to fairseq, whose words (dictionary, dataset split, epoch iterator) appear here and nowhere below.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary, iterators
from fairseq.tasks import FairseqTask, register_task

from roberta_plugin.data.blocks import make_blocks
from roberta_plugin.data.dynamic_masking import Masker
from roberta_plugin.data.masked_lm_dataset import BlockBatch, MaskedLMDataset, Source
from roberta_plugin.data.mixture import Corpus, blocks_to_take, parse_turns, share_out
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary

from .epoch_iterator import BlockEpochIterator
from .masked_lm_options import RobertaMaskedLMConfig, check_config, check_positions, check_same_vocabulary

logger = logging.getLogger(__name__)


@register_task("roberta_masked_lm", dataclass=RobertaMaskedLMConfig)
class RobertaMaskedLMTask(FairseqTask):
    """Masked-LM pretraining; drives our models and fairseq's own `--arch roberta_base`."""

    cfg: RobertaMaskedLMConfig

    def __init__(self, cfg: RobertaMaskedLMConfig, dictionary: Dictionary, vocabulary: Vocabulary) -> None:
        super().__init__(cfg)
        self.recipe = check_config(cfg)
        self.dictionary = dictionary
        self.vocabulary = vocabulary

    @classmethod
    def setup_task(cls, cfg: RobertaMaskedLMConfig, **kwargs: Any) -> RobertaMaskedLMTask:
        """Check the options and load the vocabulary, which all data folders must share."""
        check_config(cfg)
        folders = [Path(corpus.folder) for turn in parse_turns(cfg.data) for corpus in turn]
        path = folders[0] / "dict.txt"
        vocabulary = Vocabulary.load(path)
        check_same_vocabulary(folders)
        dictionary = Dictionary.load(str(path))
        dictionary.add_symbol("<mask>")
        assert len(dictionary) == len(vocabulary)
        logger.info(f"vocabulary: {len(vocabulary):,} symbols from {path}")
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
        blocks = make_blocks(
            tokens.sizes,
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

    def get_batch_iterator(
        self,
        dataset: Any,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        max_positions: int | None = None,
        ignore_invalid_inputs: bool = False,
        required_batch_size_multiple: int = 1,
        seed: int = 1,
        num_shards: int = 1,
        shard_id: int = 0,
        num_workers: int = 0,
        epoch: int = 1,
        data_buffer_size: int = 0,
        disable_iterator_cache: bool = False,
        skip_remainder_batch: bool = False,
        grouped_shuffling: bool = False,
        update_epoch_batch_itr: bool = False,
    ) -> iterators.EpochBatchIterating:
        """fairseq's epoch iterator over batches that are made anew for every epoch.

        fairseq freezes the batches of the first epoch and shuffles only their order; here the batches are a function
        of (seed, epoch), and each carries its epoch to the data-loader workers, which outlive epochs.

        Raises:
            ValueError: if a block can be longer than the model's positions or than --max-tokens.
        """
        check_positions(self.cfg.tokens_per_sample, max_positions=max_positions, max_tokens=max_tokens)
        use_cache = not (disable_iterator_cache or update_epoch_batch_itr)
        if use_cache and dataset in self.dataset_to_epoch_iter:
            return self.dataset_to_epoch_iter[dataset]
        iterator = BlockEpochIterator(
            make_batches=partial(
                batches_of_epoch,
                dataset,
                max_tokens=max_tokens,
                max_sentences=max_sentences,
                required_batch_size_multiple=required_batch_size_multiple,
            ),
            dataset=dataset,
            collate_fn=dataset.collater,
            seed=seed,
            num_shards=num_shards,
            shard_id=shard_id,
            num_workers=num_workers,
            epoch=epoch,
            buffer_size=data_buffer_size,
            skip_remainder_batch=skip_remainder_batch,
            grouped_shuffling=grouped_shuffling,
        )
        if use_cache:
            self.dataset_to_epoch_iter[dataset] = iterator
        return iterator

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """Tell the model the epoch, as fairseq's task does."""
        model.set_epoch(epoch)

    def max_positions(self) -> int:
        """Tokens in a block at most; models without --max-positions take their number of positions from here."""
        return int(self.cfg.tokens_per_sample)

    @property
    def source_dictionary(self) -> Dictionary:
        """fairseq's own dictionary object, with <mask>; the ids are those of `self.vocabulary`."""
        return self.dictionary

    @property
    def target_dictionary(self) -> Dictionary:
        """The same dictionary: inputs and targets share one vocabulary."""
        return self.dictionary


def batches_of_epoch(dataset: MaskedLMDataset, epoch: int, first_block: int, **limits: Any) -> list[BlockBatch]:
    """What the epoch iterator asks for: the batches of all ranks, from a block of the epoch on."""
    return dataset.batches(epoch, first_block=first_block, **limits)


def split_prefixes(prefix: str, *, combine: bool) -> list[str]:
    """`prefix` alone or, with `combine`, also `prefix`1, `prefix`2, ... as far as such files exist."""
    prefixes = [prefix]
    while combine and os.path.exists(f"{prefix}{len(prefixes)}.idx"):
        prefixes.append(f"{prefix}{len(prefixes)}")
    return prefixes
