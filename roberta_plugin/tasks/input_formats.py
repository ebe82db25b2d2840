"""What the inputs of pretraining are: blocks of lines, or what an extension makes of the lines of a .bin.

--input-format names an entry of `registry.INPUT_FORMATS`; without it, the inputs are blocks by --sample-break-mode.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from typing_extensions import override

from roberta_plugin.data.block_dataset import BlockDataset
from roberta_plugin.data.block_tables import open_blocks
from roberta_plugin.data.dynamic_masking import Masker
from roberta_plugin.data.masked_lm_dataset import MaskedLMDataset, SplitFile
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.models.heads import SequenceHead
from roberta_plugin.registry import INPUT_FORMATS
from roberta_plugin.tasks.joined_options import refuse_unknown

logger = logging.getLogger(__name__)

BREAK_MODES = {"full-sentences": "complete", "doc-sentences": "complete_doc"}


class InputFormat:
    """A form of the inputs: extensions override `open`, `num_blocks` and `dataset`, and the rest where it differs."""

    num_segments = 0
    """Segment embeddings of the model; the batches then have `segments`."""
    sequence_heads: Mapping[str, type[SequenceHead]] = MappingProxyType({})
    """Heads that the model trains beside the masked LM, by their names in its files; batches have `sequence_labels`."""

    def __init__(self, name: str | None, cfg: Any) -> None:
        """`name` is that of --input-format, and `cfg` the options of the task."""
        self.name, self.cfg = name, cfg

    @classmethod
    def check(cls, name: str | None, cfg: Any) -> None:
        """Refuse options that contradict the format."""
        mode = str(cfg.sample_break_mode)
        if name is not None and mode not in ("none", BREAK_MODES.get(name)):
            raise ValueError(f"--input-format {name} contradicts --sample-break-mode {mode}: give only one of the two.")

    def check_criterion(self, name: str | None) -> None:
        """Refuse a criterion that cannot compute the losses of the format."""

    def check_model(self, model: Any) -> None:
        """Refuse a model that lacks what the format needs."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """What a validation logs beside the figures of the masked LM."""
        tasks = [head.task for head in self.sequence_heads.values()]
        return tuple(f"{task}_{figure}" for task in tasks for figure in ("loss", "accuracy"))

    def open(self, tokens: MmapTokens, *, tokens_per_sample: int) -> Any:
        """Cut one .bin file into blocks of at most `tokens_per_sample` tokens, and log their number."""
        raise NotImplementedError(f"{type(self).__name__} opens no files")

    def num_blocks(self, source: Any) -> int:
        """Blocks of what `open` returns."""
        raise NotImplementedError(f"{type(self).__name__} counts no blocks")

    def dataset(
        self, sources: Sequence[Any], masker: Masker, *, vocabulary: Vocabulary, **options: Any
    ) -> BlockDataset:
        """The masked batches of all sources; `options` are those of `MaskedLMDataset`."""
        raise NotImplementedError(f"{type(self).__name__} has no batches")


class BlockFormat(InputFormat):
    """Blocks of lines, by --sample-break-mode or what --input-format means by it."""

    @override
    def open(self, tokens: MmapTokens, *, tokens_per_sample: int) -> SplitFile:
        prefix = tokens.prefix
        blocks = open_blocks(
            tokens,
            block_length=tokens_per_sample - 1,  # one less, for <s>
            break_mode=break_mode(self.cfg),  # type: ignore[arg-type]
        )
        logger.info(f"{prefix}: {len(tokens):,} lines, {tokens.num_tokens:,} tokens, {len(blocks):,} blocks")
        if blocks.num_separators:
            logger.info(f"{prefix}: {blocks.num_separators:,} blank lines are in no block")
        if blocks.num_split:
            logger.info(
                f"{prefix}: {blocks.num_split:,} lines were longer than --tokens-per-sample "
                f"{tokens_per_sample} and were split; nothing was dropped"
            )
        return SplitFile(tokens, blocks)

    @override
    def num_blocks(self, source: SplitFile) -> int:
        return len(source.blocks)

    @override
    def dataset(
        self, sources: Sequence[Any], masker: Masker, *, vocabulary: Vocabulary, **options: Any
    ) -> BlockDataset:
        return MaskedLMDataset(sources, masker, **options)


def break_mode(cfg: Any) -> str:
    """--sample-break-mode, or what --input-format means by it."""
    return BREAK_MODES.get(str(getattr(cfg, "input_format", None)), str(cfg.sample_break_mode))


def find_input_format(cfg: Any) -> InputFormat:
    """The input format of the task's options.

    Raises:
        ValueError: if no extension has it.
    """
    name, form = name_of_format(cfg), format_class(cfg)
    return form(name, cfg)


def name_of_format(cfg: Any) -> str | None:
    """--input-format; None without it."""
    name = getattr(cfg, "input_format", None)
    return None if name is None else str(name)


def format_class(cfg: Any) -> type[InputFormat]:
    """The class of the input format.

    Raises:
        ValueError: if no extension has it.
    """
    name = name_of_format(cfg)
    if name is None:
        return BlockFormat
    if name not in INPUT_FORMATS:
        refuse_unknown(INPUT_FORMATS, name, cfg, option="--input-format")
    form: type[InputFormat] = INPUT_FORMATS.load(name, "input_format")
    return form
