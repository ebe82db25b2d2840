"""Options of the pretraining task, and what they describe: the masking recipe, and how blocks and batches grow."""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.tasks.language_modeling import SAMPLE_BREAK_MODE_CHOICES
from omegaconf import II, MISSING

from roberta_plugin.data.dynamic_masking import MaskingRecipe
from roberta_plugin.registry import INPUT_FORMATS, MASKINGS
from roberta_plugin.settings import setting
from roberta_plugin.tasks import growth
from roberta_plugin.tasks.block_task_checks import whole_config
from roberta_plugin.tasks.input_formats import BREAK_MODES
from roberta_plugin.tasks.joined_options import join_options


@dataclass
class MaskedLMConfig(FairseqDataclass):
    """Options of the pretraining task; names and meanings are fairseq's `masked_lm`'s wherever it has them."""

    data: str = setting(
        MISSING,
        "folder made by `roberta binarize` or fairseq-preprocess. A,B or A@3,B@1 mixes corpora in every epoch, by size "
        "or by shares of its blocks; A:B takes turns, an epoch each",
    )
    corpus_alpha: float = setting(
        1.0,
        "for several corpora without weights: shares are proportional to size to this power; 1 = by size, "
        "smaller favours small corpora (XLM-R: 0.3)",
        smallest=0,
        largest=1,
    )
    sample_break_mode: SAMPLE_BREAK_MODE_CHOICES = setting(
        "none",
        "a block is: none, the next --tokens-per-sample tokens; complete, whole sentences (FULL-SENTENCES in the "
        "paper); complete_doc, those of one document (DOC-SENTENCES); eos, one sentence",
    )
    input_format: Optional[str] = setting(
        None,
        "input format of the paper's section 4.2; pairs need one sentence a line",
        default_text="as --sample-break-mode says",
    )
    tokens_per_sample: int = setting(512, "most tokens in a block, <s> and </s> included", smallest=3, largest=10**6)
    grow_tokens_per_sample: Optional[str] = setting(
        None,
        'shorter blocks at first, as "0:64 2500:128": UPDATE:TOKENS, the last as --tokens-per-sample, which validation '
        "always has; for blocks, not for pairs, whose texts are cut to size when they are drawn",
        goes_with={"input_format": (None, *BREAK_MODES)},
    )
    grow_max_tokens: Optional[str] = setting(
        None,
        'smaller batches at first, as "0:1024 2500:4096": UPDATE:TOKENS, the last as --max-tokens',
        excludes=("update_sequences",),
    )
    masking: str = setting("uniform", "how the predicted tokens are chosen")
    mask_prob: float = setting(0.15, "share of the tokens to predict", above=0, below=1)
    leave_unmasked_prob: float = setting(
        0.1, "probability that a predicted token stays as it is in the input", smallest=0, largest=1
    )
    random_token_prob: float = setting(
        0.1, "probability that a predicted token is replaced by a random one in the input", smallest=0, largest=1
    )
    freq_weighted_replacement: bool = setting(
        False, "draw random tokens by their counts in dict.txt instead of uniformly"
    )
    mask_whole_words: bool = setting(False, "choose words instead of tokens, and predict all tokens of a word")
    mask_multiple_length: int = setting(
        1,
        "predict spans: so many tokens (or words) from each chosen one on; overlaps make the share a little smaller",
        smallest=1,
    )
    mask_stdev: float = setting(0.0, "standard deviation of the length of the spans (0: all are equal)", smallest=0)
    num_static_masks: int = setting(
        0,
        "0: a new mask in every epoch (dynamic masking). N: N masks for each block, used in turn "
        "(static masking; the paper's baseline has 10)",
        smallest=0,
    )
    tokenizer_folder: Optional[str] = setting(
        None, "folder with the tokenizer's files, for --mask-whole-words (default: the first data folder)"
    )
    pad_to_multiple: int = setting(
        1,
        "pad every batch to a multiple of this many tokens (8 suits tensor cores), at most to a full batch; "
        "--max-tokens gives all packed rows one length, for compiled layers",
        smallest=1,
    )
    pack_sequences: bool = setting(
        False,
        "lay the blocks of a batch end to end instead of padding them; attention stays within a block. It is the "
        "default on a GPU in half precision that has a kernel for it",
        excludes=("no_pack_sequences",),
    )
    no_pack_sequences: bool = setting(False, "pad the blocks of a batch on a GPU too", on_resume="free")
    update_sequences: Optional[int] = setting(
        None,
        "blocks of an update on all ranks together; if they cannot be shared out evenly, batches differ by one block. "
        "`roberta launch` sets it",
        default_text="--batch-size x ranks x --update-freq",
        smallest=1,
        on_resume="batch",
    )
    no_baselines: bool = setting(
        False,
        "do not count the training text to log what unigrams, bigrams and counts of both neighbors would reach "
        "(unigram_loss, bigram_loss, neighbors_loss); rank 0 counts once",
        on_resume="free",
    )
    shorten_method: str = setting("none", "fairseq's; only none: long lines are split, and nothing is left out")
    shorten_data_split_list: str = setting("", "fairseq's; without effect, as --shorten-method")
    include_index: bool = setting(True, "fairseq's, for data2vec; without effect")
    include_target_tokens: bool = setting(False, "fairseq's, for data2vec; refused")
    skip_masking: bool = setting(False, "fairseq's, for data2vec; refused")
    brought_by: Optional[str] = II("common.user_dir")  # then the packages of what is chosen; checkpoints keep it
    seed: int = II("common.seed")
    cpu: bool = II("common.cpu")
    fp16: bool = II("common.fp16")
    bf16: bool = II("common.bf16")
    amp: bool = II("common.amp")
    update_freq: list[int] = II("optimization.update_freq")
    ddp_backend: str = II("distributed_training.ddp_backend")


def join_config() -> Any:
    """The options of the task with those that extensions add, as far as they are registered now."""
    return join_options(
        MaskedLMConfig, [("input_format", INPUT_FORMATS), ("masking", MASKINGS)], name="RobertaMaskedLMConfig"
    )


RobertaMaskedLMConfig: Any = join_config()


def make_recipe(cfg: Any) -> MaskingRecipe:
    """The masking recipe that the options describe."""
    return MaskingRecipe(
        mask_prob=cfg.mask_prob,
        leave_unmasked_prob=cfg.leave_unmasked_prob,
        random_token_prob=cfg.random_token_prob,
        whole_words=cfg.mask_whole_words,
        multiple_length=getattr(cfg, "mask_multiple_length", 1),
        stdev=getattr(cfg, "mask_stdev", 0.0),
        num_static_masks=cfg.num_static_masks,
        freq_weighted_replacement=cfg.freq_weighted_replacement,
    )


class Growth(NamedTuple):
    """How the length of blocks and the tokens of a batch grow; empty: they do not."""

    block: tuple[growth.Step, ...]
    batch: tuple[growth.Step, ...]

    def next_step(self, updates: int) -> int | None:
        """The number of updates at which either grows next; None: never again."""
        return growth.next_step(sorted({*self.block, *self.batch}), updates)


def max_tokens_of(cfg: Any) -> int | None:
    """--max-tokens, of fairseq's configuration around the task's, or of the namespace of a command line."""
    limit = getattr(getattr(whole_config(cfg), "dataset", cfg), "max_tokens", None)
    return None if limit is None else int(limit)


def growth_of(cfg: Any) -> Growth:
    """The growth that the options describe.

    Raises:
        ValueError: if it is not well formed, does not end at --tokens-per-sample and --max-tokens, or has a block that
            is longer than its batch.
    """
    ends = {"tokens_per_sample": cfg.tokens_per_sample, "max_tokens": max_tokens_of(cfg)}
    parsed = []
    for of_end, end in ends.items():
        name = f"grow_{of_end}"
        option = f"--{name.replace('_', '-')}"
        steps = growth.parse(getattr(cfg, name, None), option=option)
        if steps and end is not None and steps[-1].value != end:  # None where the task stands alone, as in a hub
            raise ValueError(
                f"{option} ends at {steps[-1].value}, and --{of_end.replace('_', '-')} is {end}: make them equal."
            )
        parsed.append(steps)
    result = Growth(*parsed)
    for update in sorted({step.update for step in (*result.block, *result.batch)} if result.batch else ()):
        block = growth.value_at(result.block, update, default=cfg.tokens_per_sample)
        batch = growth.value_at(result.batch, update, default=block)
        if block > batch:
            raise ValueError(
                f"--grow-max-tokens: from update {update} on a batch has {batch} tokens, which cannot hold one block "
                f"of {block}. Raise it, or shorten the block by --grow-tokens-per-sample."
            )
    return result
