"""Pretraining task: vocabulary and masked-LM datasets from fairseq's binarized data.

`roberta_plugin/data/__init__.py` draws the steps from a data-bin folder to batches; this file wires them to fairseq.
fairseq's terms (dictionary, split, epoch iterator) appear here and not below.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from fairseq.data import Dictionary
from fairseq.distributed import utils as distributed_utils
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY, register_task
from hydra.core.config_store import ConfigStore

from roberta_plugin.data.count_baselines import CountBaselines, baselines_of, comparison, has_diverged, remedy
from roberta_plugin.data.dynamic_masking import Masker
from roberta_plugin.data.manifest import check_folder, read_manifest
from roberta_plugin.data.mixture import Corpus, blocks_to_take, data_folders, parse_turns, times_read
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.neighbor_baseline import see_neighbors
from roberta_plugin.data.pair_counts import count_mixture, spread_mixture
from roberta_plugin.data.tokenizers import byte_level_bpe, load_tokenizer
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.tokenizers.sentencepiece import SentencePiece
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.fairseq_workarounds.starts import start_file
from roberta_plugin.finetuning import identity
from roberta_plugin.models.initial_counts import begin_with_counts, distances
from roberta_plugin.registry import INPUT_FORMATS, MASKINGS, Extension, on_registration
from roberta_plugin.tasks import growth, masked_lm_options
from roberta_plugin.tasks.block_task import BlockTask, load_vocabulary
from roberta_plugin.tasks.block_task_checks import token_limit_name, whole_config
from roberta_plugin.tasks.input_formats import find_input_format, name_of_format
from roberta_plugin.tasks.joined_options import note_packages, options_of
from roberta_plugin.tasks.masked_lm_checks import (
    COMBINED_VALIDATION,
    check_config,
    check_criterion,
    check_folders,
    check_metric,
    check_not_empty,
    check_positions,
    check_same_vocabulary,
    check_splits,
    check_tokenizer,
    check_validation,
    split_and_corpus,
)
from roberta_plugin.tasks.masked_lm_options import (
    Growth,
    MaskedLMConfig,
    RobertaMaskedLMConfig,
    growth_of,
    join_config,
    make_recipe,
    max_tokens_of,
)
from roberta_plugin.tasks.packing import packs_by_default

logger = logging.getLogger(__name__)
MOST_COUNTED = 2**24
"""Tokens that initial weights are made of."""


@register_task("roberta_masked_lm", dataclass=RobertaMaskedLMConfig)
class RobertaMaskedLMTask(BlockTask):
    """Masked-LM pretraining, for our models and fairseq's `--arch roberta_base`."""

    cfg: MaskedLMConfig
    name = "roberta_masked_lm"
    begins_with_counts = True  # `build_model` follows --init-attention counts
    tokenizer_description: dict[str, Any] | None = None
    """The tokenizer as the manifest of the first data-bin describes it; None without a manifest."""

    def __init__(self, cfg: MaskedLMConfig, dictionary: Dictionary, vocabulary: Vocabulary) -> None:
        super().__init__(cfg, dictionary, vocabulary)
        check_config(cfg)
        self.recipe = make_recipe(cfg)
        self.growth = growth_of(cfg)
        self.tokens_per_sample = int(cfg.tokens_per_sample)  # of the split that was loaded last
        self.mask_idx = vocabulary.mask_id  # fairseq's hub interface reads it
        self.packs = bool(cfg.pack_sequences)
        self.input_format = find_input_format(cfg)
        # What a model of ours asks for.
        self.num_segments, self.sequence_heads = self.input_format.num_segments, self.input_format.sequence_heads
        self.baselines: dict[str, CountBaselines | None] = {}
        """The baselines of each validation split; filled on rank 0 when the training begins."""
        self._baseline_losses: dict[str, dict[str, float]] = {}  # with neighbors as the training's masks leave them
        self._prefixes: dict[str, list[str]] = {}  # of the files of each split that was loaded
        self._train_split = ""
        self._read_split = ""  # the split that was asked for last
        self._last_losses: dict[str, float] = {}  # of validations
        self._remedy = remedy()

    @classmethod
    def check_options(cls, cfg: Any) -> None:
        """Also refuse a criterion of `cfg`, or a metric to choose checkpoints by, that does not fit the task."""
        super().check_options(cfg)
        check_config(cfg)
        check_criterion(getattr(cfg, "criterion", None), cfg)
        if getattr(cfg, "criterion", None) == "roberta_masked_lm" and hasattr(cfg, "best_checkpoint_metric"):
            check_metric(cfg.best_checkpoint_metric, cfg)

    @classmethod
    def check_start(cls, cfg: Any) -> None:
        """Also refuse an unfit criterion or metric, and missing data folders or splits."""
        super().check_start(cfg)
        check_criterion(getattr(cfg.criterion, "_name", None), cfg.task)
        if getattr(cfg.criterion, "_name", None) == "roberta_masked_lm":
            check_metric(cfg.checkpoint.best_checkpoint_metric, cfg.task)
        folders = data_folders(cfg.task.data)
        check_folders(folders)
        validation = [] if cfg.dataset.disable_validation else cfg.dataset.valid_subset.split(",")
        check_validation(validation, is_combined=cfg.dataset.combine_valid_subsets)
        check_splits(folders, training=cfg.dataset.train_subset, validation=validation)

    @classmethod
    def setup_task(cls, cfg: MaskedLMConfig, **kwargs: Any) -> RobertaMaskedLMTask:
        """Check the options and load the vocabulary, which all data folders must share."""
        cls.check_options(cfg)
        folders = data_folders(cfg.data)
        check_folders(folders)
        if cfg.corpus_alpha != 1.0 and not any(
            len(turn) > 1 and turn[0].weight is None for turn in parse_turns(cfg.data)
        ):
            logger.warning(
                f"--corpus-alpha {cfg.corpus_alpha} has no effect on {cfg.data!r}: it applies to several corpora "
                "without weights, FOLDER,FOLDER"
            )
        dictionary, vocabulary = load_vocabulary(folders[0])
        check_same_vocabulary(folders)
        for folder in dict.fromkeys(folders):
            check_folder(folder, num_symbols=vocabulary.num_binarized)
        chosen = ((MASKINGS, getattr(cfg, "masking", None)), (INPUT_FORMATS, name_of_format(cfg)))
        note_packages(getattr(whole_config(cfg), "task", {}), chosen)
        task = cls(cfg, dictionary, vocabulary)
        task.tokenizer_description = (read_manifest(folders[0]) or {}).get("tokenizer")
        return task

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model, and decide whether its batches are packed.

        Raises:
            ValueError: if the model lacks what the inputs need, naming the options.
        """
        model = super().build_model(cfg, from_checkpoint)
        if not from_checkpoint and str(getattr(cfg, "init_attention", "")) == "counts":
            self._begin_with_counts(model)
        self.input_format.check_model(model)
        self._remedy = remedy(cfg)
        self.packs = self.cfg.pack_sequences or packs_by_default(self.cfg, model)
        return model

    def _begin_with_counts(self, model: Any) -> None:
        """Set initial weights from counts of the training text, unless the training starts with other ones."""
        options = whole_config(self.cfg)
        if hasattr(options, "checkpoint") and (start := start_file(options.checkpoint)) is not None:
            logger.info(f"no counts for initial weights: {start} has others")
            return
        split = options.dataset.train_subset if hasattr(options, "dataset") else "train"
        prefixes = self._prefixes_of(split)
        files = {folder: list(map(MmapTokens, of_folder)) for folder, of_folder in prefixes.items()}
        num_tokens = {folder: sum(file.num_tokens for file in of_folder) for folder, of_folder in files.items()}
        times = times_read(self.cfg.data, num_tokens, alpha=self.cfg.corpus_alpha)
        begin = time.perf_counter()
        parts = spread_mixture([(of_folder, times[folder]) for folder, of_folder in files.items()], MOST_COUNTED)
        num_heads = model.encoder.sentence_encoder.layers[0].self_attn.num_heads
        pairs = {
            distance: count_mixture(parts, self.vocabulary, distance=distance) for distance in distances(num_heads)
        }
        begin_with_counts(model, pairs)
        take_first_ranks_weights(model)
        counted = sum(stop - start for windows, _ in parts for _, start, stop in windows)
        logger.info(f"initial weights from counts of {counted:,} tokens, in {time.perf_counter() - begin:.1f} s")

    def _prefixes_of(self, split: str) -> dict[Path, list[str]]:
        """Prefixes of a split's files by data folder."""
        folders = data_folders(self.cfg.data)
        return {folder: split_prefixes(os.path.join(folder, split), combine=True) for folder in folders}

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the criterion: ours, fairseq's masked_lm, or a user's own."""
        check_criterion(getattr(cfg, "_name", None) or getattr(cfg, "criterion", None), self.cfg)
        return super().build_criterion(cfg, from_checkpoint)

    def state_dict(self) -> dict[str, Any]:
        """Saved in every checkpoint: the hash of the vocabulary, and the tokenizer if the data-bin describes it."""
        return {identity.KEY: {"tokenizer": self.tokenizer_description, "vocabulary": self.vocabulary.sha256}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Do nothing: only fine-tuning reads this state, to compare it with its data."""

    def build_masker(self) -> Masker:
        """The masking function for this vocabulary and these options."""
        word_starts = word_ends = None
        if self.cfg.mask_whole_words:
            folder = Path(self.cfg.tokenizer_folder or data_folders(self.cfg.data)[0])
            bpe_tokenizer = None if self.cfg.tokenizer_folder else tokenizer_of_bpe(whole_config(self.cfg))
            try:
                tokenizer = bpe_tokenizer or load_tokenizer(folder, symbols=self.vocabulary.symbols)
            except FileNotFoundError as error:
                raise FileNotFoundError(f"--mask-whole-words: {error} Then give --tokenizer-folder FOLDER.") from error
            check_tokenizer(tokenizer, self.vocabulary, made_with=self.tokenizer_description, data=self.cfg.data)
            word_starts, word_ends = self.vocabulary.word_starts(tokenizer), self.vocabulary.word_ends(tokenizer)
        name = getattr(self.cfg, "masking", "uniform")
        masker: Masker = MASKINGS.load(name, "masker").for_vocabulary(
            self.vocabulary,
            self.recipe,
            word_starts=word_starts,
            word_ends=word_ends,
            options=options_of(MASKINGS, name, self.cfg),
        )
        return masker

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load a split: for training, that of the folders whose turn it is in `epoch` (1-based), in their shares.

        Validation does not depend on the epoch: it takes all blocks of the first turn in which a folder has the split,
        without folders that lack it; `valid@NAME` takes those of the folder called NAME. Its masks do not depend on the
        other turns. With `combine`, which fairseq sets for training and for --combine-valid-subsets, the files
        {split}1, {split}2, ... are added.

        Raises:
            FileNotFoundError: if the split is missing: in any folder, for training; in all folders, for validation.
        """
        turns = parse_turns(self.cfg.data)
        is_training = combine and split != COMBINED_VALIDATION
        turn = (epoch - 1) % len(turns) if is_training else 0
        self.tokens_per_sample = self.current("block") if is_training else int(self.cfg.tokens_per_sample)
        name, _ = split_and_corpus(split)
        corpora = turns[turn] if is_training else corpora_with(split, turns)
        prefixes = [split_prefixes(os.path.join(corpus.folder, name), combine=combine) for corpus in corpora]
        self._prefixes[split] = [prefix for of_corpus in prefixes for prefix in of_corpus]
        if is_training:
            self._train_split = split
        files: list[list[Any]] = [[self.open(prefix) for prefix in of_corpus] for of_corpus in prefixes]
        sources = [source for of_corpus in files for source in of_corpus]
        sizes = [sum(map(self.input_format.num_blocks, of_corpus)) for of_corpus in files]
        check_not_empty(split, [corpus.folder for corpus in corpora], sizes, is_training=is_training)
        options: dict[str, Any] = {
            "bos_id": self.vocabulary.bos_id,
            "pad_id": self.vocabulary.pad_id,
            "vocab_size": len(self.vocabulary),
            "seed": self.cfg.seed,
            "mixture": list(zip(sizes, self.counts(corpora, sizes), strict=True))
            if is_training and len(sizes) > 1
            else None,
            "shard": turn,
            "num_shards": len(turns) if is_training else 1,
            "pad_to_multiple": self.cfg.pad_to_multiple,
            "pack": self.packs,
            # by the option alone: the order of an epoch must not depend on the machine
            "sort_by_length": not self.cfg.pack_sequences,
            "max_length": self.tokens_per_sample,
        }
        dataset = self.input_format.dataset(sources, self.build_masker(), vocabulary=self.vocabulary, **options)
        dataset.counts_updates = is_training
        dataset.update_sequences = getattr(self.cfg, "update_sequences", None) if is_training else None
        self.datasets[split] = dataset

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """Prepare the epoch; before the first one, rank 0 reads or computes the baselines and logs them."""
        super().begin_epoch(epoch, model)
        new = [split for split in self._prefixes if split not in (self._train_split, *self.baselines)]
        is_wanted = bool(self._train_split) and not getattr(self.cfg, "no_baselines", False)
        if not new or not is_wanted or distributed_utils.get_global_rank() > 0:
            return
        train = [prefix for of_folder in self._prefixes_of(self._train_split).values() for prefix in of_folder]
        for split, counted in baselines_of(train, {split: self._prefixes[split] for split in new}).items():
            self.baselines[split] = counted
            if counted is not None:
                text = MmapTokens(self._prefixes[split][0])
                seen = see_neighbors(self.build_masker(), text, block_length=self.cfg.tokens_per_sample)
                self._baseline_losses[split] = counted.losses(seen)
                logger.info(
                    f"baselines on {split}: {counted.describe(seen)}; counted in {counted.num_counted:,} tokens"
                )

    def get_batch_iterator(self, dataset: Any, *args: Any, **options: Any) -> Any:
        """Batches of a split, whose name is noted: fairseq does not pass it when it validates."""
        self._read_split = next((split for split, loaded in self.datasets.items() if loaded is dataset), "")
        if self._read_split == self._train_split and self.growth != Growth((), ()):
            options["max_tokens"] = self.current("batch") or None
            limit = f", batches of {options['max_tokens']:,}" if options["max_tokens"] else ""
            logger.info(
                f"after {self.count_updates():,} updates: blocks of at most {self.tokens_per_sample:,} tokens{limit}"
            )
        return super().get_batch_iterator(dataset, *args, **options)

    def has_sharded_data(self, split: str) -> bool:
        """Whether each epoch loads the split anew: with data in turns, and where blocks or batches grow."""
        return bool(super().has_sharded_data(split) or self.growth != Growth((), ()))

    def updates_left(self, dataset: Any) -> int | None:
        """Updates until blocks or batches of the training grow; None if they do not."""
        is_training = dataset is self.datasets.get(self._train_split)
        step = self.growth.next_step(self.count_updates()) if is_training else None
        return None if step is None else step - self.count_updates()

    def current(self, what: Literal["block", "batch"]) -> int:
        """The tokens of a block, or of a batch, after the updates that the training has made."""
        end = self.cfg.tokens_per_sample if what == "block" else max_tokens_of(self.cfg)
        return growth.value_at(getattr(self.growth, what), self.count_updates(), default=int(end or 0))

    def post_validate(self, model: Any, stats: dict[str, Any], agg: Any) -> None:
        """Add the baselines to the numbers of a validation, before fairseq logs them."""
        losses = self._baseline_losses.get(self._read_split)
        if losses is not None and "loss" in stats:
            stats.update({name: round(loss, 3) for name, loss in losses.items()})
            self._last_losses[self._read_split] = float(stats["loss"])

    def end_training(self) -> None:
        """Compare the last validation of each split with its baselines, in the log."""
        for split, loss in self._last_losses.items():
            losses, size = self._baseline_losses[split], len(self.dictionary)
            sentence = comparison(loss, losses, what=f"On {split}, the model", num_symbols=size)
            if loss < losses["unigram_loss"]:
                logger.info(sentence)
            elif has_diverged(loss, num_symbols=size):
                logger.warning(f"{sentence}.")
            else:
                logger.warning(f"{sentence}. {self._remedy}")

    def open(self, prefix: str) -> Any:
        """Open one .bin file, cut it into blocks, and log their number."""
        return self.input_format.open(MmapTokens(prefix), tokens_per_sample=self.tokens_per_sample)

    def counts(self, corpora: Sequence[Corpus], sizes: Sequence[int]) -> list[int]:
        """Number of blocks per epoch from each corpus, which have `sizes` blocks; logs the shares."""
        weights = [corpus.weight for corpus in corpora if corpus.weight is not None]
        taken = blocks_to_take(sizes, weights=weights or None, alpha=self.cfg.corpus_alpha)
        for number, (corpus, count, size) in enumerate(zip(corpora, taken, sizes, strict=True)):
            logger.info(
                f"{corpus.folder}: {count:,} blocks in an epoch, drawn from its {size:,}: "
                f"{100 * count / sum(taken):.1f} % of the training data"
            )
            if weights and weights[number] * sum(sizes) < sum(weights):
                logger.warning(
                    f"The weight of {corpus.folder} amounts to less than one of the {sum(sizes):,} blocks of an epoch: "
                    "it gets one block. Raise its weight, or leave the corpus out"
                )
        return taken

    def check_limits(self, *, max_positions: int | None, max_tokens: int | None) -> None:
        """Refuse blocks that can be longer than the model's positions or than --max-tokens."""
        check_positions(
            self.cfg.tokens_per_sample,
            max_positions=max_positions,
            max_tokens=max_tokens,
            limit=token_limit_name(self.cfg, max_tokens or 0),
        )

    def max_positions(self) -> int:
        """Maximum tokens per block; models without --max-positions take their number of positions from it."""
        return int(self.cfg.tokens_per_sample)


def add_options(extension: Extension) -> None:
    """Add the options of an extension that comes late, such as one of a --user-dir, to the registered task."""
    if not (extension.maskings or extension.input_formats):
        return
    before, joined = masked_lm_options.RobertaMaskedLMConfig, join_config()
    masked_lm_options.RobertaMaskedLMConfig = joined
    for name in [each for each, options in TASK_DATACLASS_REGISTRY.items() if options is before]:
        setattr(TASK_REGISTRY[name], "__dataclass", joined)
        TASK_DATACLASS_REGISTRY[name] = joined
        ConfigStore.instance().store(name=name, group="task", node=joined(_name=name), provider="fairseq")


on_registration.append(add_options)


def take_first_ranks_weights(model: Any) -> None:
    """Give all ranks the same model: processors of other kinds compute other last digits, which stay different."""
    group = distributed_utils.get_global_group()
    if distributed_utils.get_world_size(group) == 1:
        return
    device = "cuda" if torch.distributed.get_backend(group) == "nccl" else "cpu"
    with torch.no_grad():
        for weights in model.parameters():
            sent = weights.to(device)
            distributed_utils.broadcast(sent, src=0, group=group)
            weights.copy_(sent)


def tokenizer_of_bpe(cfg: Any) -> Tokenizer | None:
    """The tokenizer in the files that fairseq's --bpe names, beside --mask-whole-words; None if it names none."""
    bpe = getattr(cfg, "bpe", None)
    name = str(getattr(bpe, "_name", None))
    options = {"gpt2": ("gpt2_encoder_json", "gpt2_vocab_bpe"), "sentencepiece": ("sentencepiece_model",)}.get(name, ())
    paths = [Path(str(getattr(bpe, option))) for option in options]
    if missing := [
        f"--{option.replace('_', '-')} {getattr(bpe, option)}"
        for option, path in zip(options, paths, strict=True)
        if not path.is_file()
    ]:
        raise FileNotFoundError(
            f"{' and '.join(missing)} of --bpe {name} cannot be read: name a file, or give --tokenizer-folder instead."
        )
    if name == "gpt2":
        return byte_level_bpe.read_files(*paths)
    return SentencePiece(paths[0].read_bytes()) if paths else None


def corpora_with(split: str, turns: Sequence[Sequence[Corpus]]) -> list[Corpus]:
    """The corpora that have the split, in the first turn where any has it; of `valid@NAME`, those called NAME."""
    name, chosen = split_and_corpus(split)
    for turn in turns:
        of_turn = [corpus for corpus in turn if not chosen or Path(corpus.folder).name == chosen]
        corpora = [corpus for corpus in of_turn if os.path.exists(os.path.join(corpus.folder, f"{name}.idx"))]
        if corpora:
            return corpora
    folders = ", ".join(corpus.folder for turn in turns for corpus in turn)
    raise FileNotFoundError(
        f"No data folder has the split {split!r} ({name}.idx is missing in {folders}): make it with `roberta "
        "binarize`, name another one with --valid-subset, or add --disable-validation."
    )


def split_prefixes(prefix: str, *, combine: bool) -> list[str]:
    """`prefix`; with `combine` also `prefix`1, `prefix`2, ... as far as the files exist."""
    prefixes = [prefix]
    while combine and os.path.exists(f"{prefix}{len(prefixes)}.idx"):
        prefixes.append(f"{prefix}{len(prefixes)}")
    return prefixes
