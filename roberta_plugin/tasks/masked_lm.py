"""Pretraining task: options, vocabulary and masked-LM datasets from fairseq's binarized data.

The steps from a data-bin folder to batches are drawn in `roberta_plugin/data/__init__.py`; this file only wires them
to fairseq, whose words (dictionary, dataset split, epoch iterator) appear here and nowhere below.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fairseq import utils
from fairseq.data import Dictionary, iterators
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask, register_task
from fairseq.tasks.language_modeling import SAMPLE_BREAK_MODE_CHOICES
from omegaconf import II, MISSING

from roberta_plugin.data.blocks import make_blocks
from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.data.masked_lm_dataset import BlockBatch, MaskedLMDataset
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary

logger = logging.getLogger(__name__)


@dataclass
class RobertaMaskedLMConfig(FairseqDataclass):
    """Options of the pretraining task; names and meanings are fairseq's `masked_lm`'s wherever it has them."""

    data: str = field(
        default=MISSING,
        metadata={
            "help": "folder made by `roberta binarize` or fairseq-preprocess; or several, separated by colons: "
            "one folder an epoch, in turn"
        },
    )
    sample_break_mode: SAMPLE_BREAK_MODE_CHOICES = field(
        default="none",
        metadata={
            "help": "how text becomes blocks: none = every --tokens-per-sample tokens; complete = whole sentences that "
            "may cross documents (FULL-SENTENCES in the paper); complete_doc = whole sentences of one document "
            "(DOC-SENTENCES); eos = one sentence"
        },
    )
    tokens_per_sample: int = field(default=512, metadata={"help": "tokens in a block at most, <s> included"})
    mask_prob: float = field(default=0.15, metadata={"help": "share of the tokens to predict"})
    leave_unmasked_prob: float = field(
        default=0.1, metadata={"help": "probability that a predicted token stays as it is in the input"}
    )
    random_token_prob: float = field(
        default=0.1, metadata={"help": "probability that a predicted token is replaced by a random one in the input"}
    )
    freq_weighted_replacement: bool = field(
        default=False, metadata={"help": "draw random tokens by their counts in dict.txt instead of uniformly"}
    )
    mask_whole_words: bool = field(
        default=False, metadata={"help": "choose words instead of tokens, and predict all tokens of a word"}
    )
    num_static_masks: int = field(
        default=0,
        metadata={
            "help": "0: a new mask in every epoch (dynamic masking). N: N masks for each block, used in turn "
            "(static masking; the paper's baseline has 10)"
        },
    )
    tokenizer_folder: str | None = field(
        default=None,
        metadata={"help": "folder with the tokenizer's files, for --mask-whole-words (default: the first data folder)"},
    )
    pad_to_multiple: int = field(
        default=1, metadata={"help": "pad every batch to a multiple of this many tokens (8 suits tensor cores)"}
    )
    seed: int = II("common.seed")


def check_config(cfg: RobertaMaskedLMConfig) -> MaskingRecipe:
    """Refuse option values that cannot work, by name, and return the masking recipe they describe."""
    if not utils.split_paths(cfg.data or ""):
        raise ValueError("The data folder is missing: give the path of a data-bin folder as the first argument.")
    if cfg.tokens_per_sample < 3:
        raise ValueError(
            f"--tokens-per-sample must be at least 3 (<s>, one token and </s>), got {cfg.tokens_per_sample}."
        )
    if cfg.pad_to_multiple < 1:
        raise ValueError(f"--pad-to-multiple must be 1 or more, got {cfg.pad_to_multiple}.")
    recipe = MaskingRecipe(
        mask_prob=cfg.mask_prob,
        leave_unmasked_prob=cfg.leave_unmasked_prob,
        random_token_prob=cfg.random_token_prob,
        whole_words=cfg.mask_whole_words,
        num_static_masks=cfg.num_static_masks,
        freq_weighted_replacement=cfg.freq_weighted_replacement,
    )
    recipe.check()
    return recipe


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
        folders = [Path(folder) for folder in utils.split_paths(cfg.data)]
        vocabulary = Vocabulary.load(folders[0] / "dict.txt")
        check_same_vocabulary(folders)
        dictionary = Dictionary.load(str(folders[0] / "dict.txt"))
        dictionary.add_symbol("<mask>")
        logger.info(f"vocabulary: {len(vocabulary):,} symbols from {folders[0] / 'dict.txt'}")
        return cls(cfg, dictionary, vocabulary)

    def build_masker(self) -> Masker:
        """The masking function for this vocabulary and these options."""
        word_starts = None
        if self.cfg.mask_whole_words:
            folder = Path(self.cfg.tokenizer_folder or utils.split_paths(self.cfg.data)[0])
            word_starts = self.vocabulary.word_starts(load_tokenizer(folder))
        return Masker(
            self.recipe,
            vocab_size=len(self.vocabulary),
            mask_id=self.vocabulary.mask_id,
            pad_id=self.vocabulary.pad_id,
            never_masked=self.vocabulary.never_masked(),
            never_drawn=self.vocabulary.never_drawn(),
            word_starts=word_starts,
            counts=self.vocabulary.counts if self.cfg.freq_weighted_replacement else None,
        )

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load the split of the folder whose turn it is in `epoch` (1-based).

        With `combine` (fairseq sets it for training), {split}1, {split}2, ... beside {split} are added to it.
        """
        folders = utils.split_paths(self.cfg.data)
        folder = folders[(epoch - 1) % len(folders)]
        sources = [MmapTokens(prefix) for prefix in split_prefixes(os.path.join(folder, split), combine=combine)]
        self.datasets[split] = MaskedLMDataset(
            [(tokens, self.make_blocks(tokens)) for tokens in sources],
            self.build_masker(),
            bos_id=self.vocabulary.bos_id,
            pad_id=self.vocabulary.pad_id,
            vocab_size=len(self.vocabulary),
            seed=self.cfg.seed,
            shard=(epoch - 1) % len(folders),
            num_shards=len(folders),
            pad_to_multiple=self.cfg.pad_to_multiple,
        )

    def make_blocks(self, tokens: MmapTokens) -> Any:
        """Cut one .bin file into blocks, and say what was cut."""
        blocks = make_blocks(
            tokens.sizes,
            block_length=self.cfg.tokens_per_sample - 1,  # one less, for <s>
            break_mode=str(self.cfg.sample_break_mode),  # type: ignore[arg-type]
        )
        logger.info(f"{tokens.prefix}: {len(tokens):,} lines, {tokens.num_tokens:,} tokens, {len(blocks):,} blocks")
        if blocks.num_split:
            logger.info(
                f"{tokens.prefix}: {blocks.num_split:,} lines were longer than --tokens-per-sample "
                f"{self.cfg.tokens_per_sample} and were split; nothing was dropped"
            )
        return blocks

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
        iterator = iterators.EpochBatchIterator(
            dataset=dataset,
            collate_fn=dataset.collater,
            batch_sampler=partial(
                batches_of_epoch,
                max_tokens=max_tokens,
                max_sentences=max_sentences,
                required_batch_size_multiple=required_batch_size_multiple,
            ),
            seed=seed,
            num_shards=num_shards,
            shard_id=shard_id,
            num_workers=num_workers,
            epoch=epoch,
            buffer_size=data_buffer_size,
            skip_remainder_batch=skip_remainder_batch,
            grouped_shuffling=grouped_shuffling,
            reuse_dataloader=True,
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


def batches_of_epoch(dataset: MaskedLMDataset, epoch: int, **limits: Any) -> list[BlockBatch]:
    """The batch sampler handed to fairseq's iterator, which calls it with the epoch it needs."""
    return dataset.batches(epoch, **limits)


def split_prefixes(prefix: str, *, combine: bool) -> list[str]:
    """`prefix` alone or, with `combine`, also `prefix`1, `prefix`2, ... as far as such files exist."""
    prefixes = [prefix]
    while combine and os.path.exists(f"{prefix}{len(prefixes)}.idx"):
        prefixes.append(f"{prefix}{len(prefixes)}")
    return prefixes


def check_same_vocabulary(folders: list[Path]) -> None:
    """Refuse data folders whose dict.txt differ: the same id would mean different symbols."""
    first = (folders[0] / "dict.txt").read_bytes()
    for folder in folders[1:]:
        path = folder / "dict.txt"
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist: every data folder needs the dict.txt it was made with.")
        if path.read_bytes() != first:
            raise ValueError(
                f"{path} differs from {folders[0] / 'dict.txt'}: data folders that are trained on together must be "
                "binarized with one vocabulary."
            )


def check_positions(tokens_per_sample: int, *, max_positions: int | None, max_tokens: int | None) -> None:
    """Refuse blocks that fairseq would silently drop: longer than the model's positions or than a whole batch."""
    if max_tokens is not None and tokens_per_sample > max_tokens:
        raise ValueError(
            f"--max-tokens ({max_tokens}) is smaller than --tokens-per-sample ({tokens_per_sample}): a batch could "
            "not hold one block. Raise the first or lower the second."
        )
    if max_positions is not None and tokens_per_sample > max_positions:
        raise ValueError(
            f"--tokens-per-sample ({tokens_per_sample}) exceeds the model's {max_positions} positions: lower it, or "
            "train a model with a larger --max-positions."
        )
