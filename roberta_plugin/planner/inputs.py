"""A recipe and the speed of one GPU -> `Training`, the input of `plan.py`."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roberta_plugin.launch import arguments as train_arguments
from roberta_plugin.launch.arguments import check_options
from roberta_plugin.launch.log import median_speed
from roberta_plugin.launch.recipe import LaunchSettings, complete
from roberta_plugin.models.sharing import num_groups
from roberta_plugin.planner.flops import PAPER_VOCABULARY, Shape, flops_per_token
from roberta_plugin.planner.machines import Machine

_SPECIALS = 5  # <s> <pad> </s> <unk>, which dict.txt never holds, and <mask>, which the task adds
_DEVICES = re.compile(r"training on (\d+) devices")


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Types of weights and optimizer state under fairseq's --fp16, --bf16 and --memory-efficient-*."""

    is_half: bool = True
    is_memory_efficient: bool = False
    has_own_masters: bool = False  # roberta_adamw keeps fp32 weights in memory-efficient half too

    @property
    def size(self) -> int:
        """Bytes of a weight, an activation, and an all-reduced gradient."""
        return 2 if self.is_half else 4

    @property
    def state_size(self) -> int:
        """Bytes per parameter for weights, gradients and Adam's two moments.

            fp32                                        4 + 4 + 8
            half                                        2 + 2 + 8, + 4 + 4 for fp32 copies of weights and gradients
            memory-efficient half                       2 + 2 + 8
            memory-efficient half with roberta_adamw    2 + 2 + 8, + 4 for an fp32 copy of the weights

        fairseq's `FP16Optimizer.build_fp32_params` makes both copies; Rajbhandari et al. 2020 ("ZeRO", section 3.1)
        count that of the weights only.
        """
        if not self.is_half:
            return 16
        if not self.is_memory_efficient:
            return 20
        return 16 if self.has_own_masters else 12


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training, and its speed on one GPU."""

    shape: Shape
    precision: Precision
    batch_sequences: int  # per update, on all GPUs together
    most_per_gpu: int  # sequences in one forward pass of a GPU
    num_updates: int
    tokens_per_second: float  # of one GPU alone
    has_dropout: bool = True
    has_eager_attention: bool = False
    recompute: bool = False
    save_minutes: float = 0.0  # between checkpoints by the clock; 0: none
    save_updates: int = 0  # between checkpoints by updates; 0: none
    may_differ: bool = True  # whether the GPUs' batches may differ by a sequence, as those of the pretraining task
    overlaps: bool = True  # whether the all-reduce overlaps the backward pass: torch's DDP, not legacy_ddp

    @property
    def tokens_per_update(self) -> int:
        """Tokens per update on all GPUs together."""
        return self.batch_sequences * self.shape.tokens_per_sample

    @property
    def flops(self) -> float:
        """FLOPs of the whole training, recomputation not counted."""
        return flops_per_token(self.shape) * self.tokens_per_update * self.num_updates


def training_of(
    recipe: LaunchSettings,
    *,
    machine: Machine,
    tokens_per_second: float | None = None,
    log: Path | None = None,
    utilization: float | None = None,
) -> Training:
    """The recipe's training; exactly one of `tokens_per_second`, `log` and `utilization` gives the speed of one GPU.

    Raises:
        ValueError: if not exactly one of the three is given, if the recipe has no batch size or no number of updates,
            or if `fairseq-train` would refuse its options.
    """
    parsed = train_arguments.parse(complete(recipe))
    if not hasattr(parsed, "tokens_per_sample"):
        raise ValueError(
            f"The task {parsed.task} has no --tokens-per-sample: a plan counts equal blocks, as in pretraining with "
            "roberta_masked_lm, and no fine-tuning."
        )
    check_options(parsed, is_to_start=False)
    shape = shape_of(parsed)
    if sum(value is not None for value in (tokens_per_second, log, utilization)) != 1:
        raise ValueError(
            "Give the speed of one GPU by exactly one of --tokens-per-second, --log (of a run on one GPU) and "
            "--utilization."
        )
    if utilization is not None:
        tokens_per_second = utilization * machine.peak_tflops * 1e12 / flops_per_token(shape)
    elif log is not None:
        tokens_per_second = speed_in_log(log)
    assert tokens_per_second is not None
    if not parsed.max_update or parsed.max_update < 0:
        raise ValueError("The recipe has no --max-update, so the length of the training is unknown: add max_update.")
    if not parsed.batch_size:
        raise ValueError("The recipe has no --batch-size: add the largest batch that fits on one GPU.")
    most = int(train_arguments.value_of(recipe.train, "--batch-size", needed_for="The plan"))
    return Training(
        shape=shape,
        precision=Precision(
            is_half=bool(parsed.fp16 or parsed.bf16 or parsed.memory_efficient_fp16 or parsed.memory_efficient_bf16),
            is_memory_efficient=bool(parsed.memory_efficient_fp16 or parsed.memory_efficient_bf16),
            has_own_masters=parsed.optimizer == "roberta_adamw",
        ),
        batch_sequences=getattr(parsed, "update_sequences", None)
        or parsed.batch_size * int(parsed.update_freq[0]) * recipe.num_gpus,
        most_per_gpu=most,
        num_updates=parsed.max_update,
        tokens_per_second=tokens_per_second,
        has_dropout=getattr(parsed, "dropout", 0.1) > 0,
        has_eager_attention=getattr(parsed, "attention_backend", "auto") == "eager",
        may_differ=parsed.task == train_arguments.OUR_TASK,
        overlaps=parsed.ddp_backend not in ("legacy_ddp", "no_c10d"),
        save_minutes=recipe.checkpoint_minutes,
        save_updates=int(parsed.save_interval_updates or 0),
        recompute=bool(getattr(parsed, "checkpoint_activations", False)),
    )


def shape_of(parsed: Namespace) -> Shape:
    """Model sizes from fairseq's options."""
    has_pairs = str(getattr(parsed, "input_format", "")).endswith("-pair")
    groups = num_groups(getattr(parsed, "share_layers", "none"), parsed.encoder_layers)
    parts = str(getattr(parsed, "share_parts", "all"))
    return Shape(
        num_layers=parsed.encoder_layers,
        dim=parsed.encoder_embed_dim,
        ffn_dim=parsed.encoder_ffn_embed_dim,
        num_heads=parsed.encoder_attention_heads,
        vocab_size=vocabulary_size(train_arguments.data_folders(parsed)),
        max_positions=getattr(parsed, "max_positions", None) or parsed.tokens_per_sample,
        tokens_per_sample=parsed.tokens_per_sample,
        predicted_share=parsed.mask_prob,
        predicts_next_sentence=bool(getattr(parsed, "next_sentence_prediction", False)),
        num_attentions=groups if parts in ("all", "attention") else None,
        num_ffns=groups if parts in ("all", "ffn") else None,
        num_segments=2 if has_pairs and not parsed.no_segment_embeddings else 0,
        num_outer_norms=1
        + bool(getattr(parsed, "encoder_normalize_before", False))
        - bool(getattr(parsed, "no_layernorm_embedding", False)),
    )


def vocabulary_size(folders: Sequence[Path]) -> int:
    """Vocabulary size from the data's dict.txt; the paper's if the data is not on this machine."""
    path = folders[0] / "dict.txt" if folders else None
    if path is None or not path.is_file():
        return PAPER_VOCABULARY
    with open(path, encoding="utf-8") as lines:
        return _SPECIALS + sum(not line.startswith("<mask> ") for line in lines)


def speed_in_log(path: Path) -> float:
    """Tokens per second of one GPU, from the output of fairseq-train with --log-format json.

    Raises:
        ValueError: if it contains no speed.
    """
    if not path.is_file():
        raise FileNotFoundError(f"--log {path} does not exist: give the output of a fairseq-train run.")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    speed = median_speed(lines)
    if not speed:
        raise ValueError(
            f"--log {path} contains no speed: it needs `train_inner` lines, written with --log-format json."
        )
    devices = [int(match.group(1)) for line in lines if (match := _DEVICES.search(line))]
    return speed / (devices[-1] if devices else 1)
