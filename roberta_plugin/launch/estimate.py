"""FLOPs, hours and memory of a pretraining, for dry runs: estimates, not measurements.

    fairseq-train's options  -> Shape     -> parameters, FLOPs
                             -> estimate  -> a line: FLOPs, hours, share of the peak (MFU), memory of a GPU

Hours, in half precision, are what tests/benchmarks/count_gpu_step.py counts for an H100, times ratios of peaks:

    work      matrix products at 600 TFLOP/s; flash attention at 200 forward and 160 backward (280 and 200 without
              dropout); everything else at the 2.9 TB/s of its memory
    launches  1.5 microseconds between two kernels
    host      18 microseconds to start a kernel: the GPU waits where that is longer than work and launches
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch

from roberta_plugin.launch.arguments import data_folders
from roberta_plugin.models.checkpoints import ModelOnlyTask, NoInitialization
from roberta_plugin.models.config import ARCHITECTURE, FastRobertaConfig, has_position_limit
from roberta_plugin.models.encoder import num_ffn_matrices
from roberta_plugin.models.flops import half_precision_peak, training_flops
from roberta_plugin.models.heads import SequenceHead
from roberta_plugin.models.positions import PositionScheme
from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.tasks.growth import value_at
from roberta_plugin.tasks.input_formats import find_input_format
from roberta_plugin.tasks.masked_lm_options import growth_of, max_tokens_of

PAPER_VOCABULARY = 50_265  # the released models: 50,260 symbols, and <s> <pad> </s> <unk> <mask>
_SPECIALS = 5  # <s> <pad> </s> <unk>, which dict.txt never holds, and <mask>, which the task adds
_SIZES = ("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads", "max_positions")
REFERENCE = "H100"
PRODUCTS, BANDWIDTH = 600e12, 2.9e12  # FLOP/s, and bytes a second
ATTENTION = {False: (280e12, 200e12), True: (200e12, 160e12)}  # forward and backward, without and with dropout
GAP_S, HOST_S = 1.5e-6, 18e-6  # for each kernel; what follows is fitted to the counts of base and large
LAUNCHES, LAUNCHES_OF_LAYER, LAUNCHES_OF_DROPOUT = 49, 39.5, 4.2
BYTES_OF_WEIGHT, BYTES_OF_LOGIT = 36, 43  # for an update of a weight; for the loss and casts of a logit
BYTES_OF_SUM = 10  # for a gradient of one more pass: read in 2 bytes, added in 4
CUDA_CONTEXT = 1.0e9  # bytes; assumed size of the driver's, cuBLAS's and NCCL's buffers


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of the model and its input; the defaults are RoBERTa base at full length."""

    num_layers: int = 12
    dim: int = 768
    ffn_dim: int = 3072
    num_heads: int = 12
    vocab_size: int = PAPER_VOCABULARY
    max_positions: int = 512
    tokens_per_sample: int = 512
    predicted_share: float = 0.15
    sequence_heads: Mapping[str, type[SequenceHead]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    """Further options of the model, by their names in `FastRobertaConfig`."""

    @property
    def config(self) -> dict[str, Any]:
        """The model's options."""
        sizes = {"encoder_layers": self.num_layers, "encoder_embed_dim": self.dim}
        sizes |= {"encoder_ffn_embed_dim": self.ffn_dim, "encoder_attention_heads": self.num_heads}
        return {**sizes, **self.options}

    @cached_property
    def num_parameters(self) -> int:
        """Trainable parameters of the model itself, which is built without memory for them."""
        task: Any = ModelOnlyTask(_Symbols(self.vocab_size), self.max_positions)
        task.sequence_heads = self.sequence_heads
        with torch.device("meta"), NoInitialization():
            model = FastRobertaModel.build_model(Namespace(**self.config), task)
        return sum(parameter.numel() for parameter in model.parameters())

    @cached_property
    def positions(self) -> PositionScheme:
        """Rotary positions and windows."""
        return PositionScheme.from_config(FastRobertaConfig(**self.config))

    @property
    def longest(self) -> float:
        """Tokens that the model reads at most."""
        return self.max_positions if has_position_limit(self.options) else math.inf

    @property
    def ffn_matrices(self) -> int:
        """Matrices of a feed-forward layer."""
        return num_ffn_matrices(str(self.options.get("feed_forward", "plain")))

    def flops(self, *, tokens: float, pairs: float = 0, predicted: float = 0, sequences: float = 0) -> float:
        """FLOPs of forward and backward, by `models/flops.py`; `pairs` of positions attend to each other."""
        return training_flops(
            num_layers=self.num_layers,
            dim=self.dim,
            ffn_dim=self.ffn_dim,
            ffn_matrices=self.ffn_matrices,
            vocab_size=self.vocab_size,
            num_tokens=tokens,
            num_pairs=pairs,
            num_predicted=predicted,
            num_sequences=sequences,
            sequence_classes=[head.num_classes for head in self.sequence_heads.values()],
            num_local_layers=self.positions.num_local(self.num_layers),
            window=self.positions.window or 0,
        )


class _Symbols(NamedTuple):
    """The part of a vocabulary that a model needs to be built."""

    number: int

    def __len__(self) -> int:
        return self.number

    def pad(self) -> int:
        """The id of <pad>."""
        return 1


def model_shape(parsed: Namespace) -> Shape:
    """Model sizes from fairseq's options."""
    further = {name: getattr(parsed, name, None) for name in ARCHITECTURE if name not in _SIZES}
    return Shape(
        num_layers=parsed.encoder_layers,
        dim=parsed.encoder_embed_dim,
        ffn_dim=parsed.encoder_ffn_embed_dim,
        num_heads=parsed.encoder_attention_heads,
        vocab_size=vocabulary_size(data_folders(parsed)),
        max_positions=getattr(parsed, "max_positions", None) or parsed.tokens_per_sample,
        tokens_per_sample=parsed.tokens_per_sample,
        predicted_share=parsed.mask_prob,
        sequence_heads=find_input_format(parsed).sequence_heads,
        options={
            name: value if isinstance(value, bool | int | float) else str(value)
            for name, value in further.items()
            if value is not None and value != getattr(FastRobertaConfig, name)
        },
    )


def vocabulary_size(folders: Sequence[Path]) -> int:
    """Vocabulary size from the data's dict.txt; the paper's if the data are not on this machine."""
    path = folders[0] / "dict.txt" if folders else None
    if path is None or not path.is_file():
        return PAPER_VOCABULARY
    with open(path, encoding="utf-8") as lines:
        return _SPECIALS + sum(not line.startswith("<mask> ") for line in lines)


def phases(parsed: Namespace) -> Iterator[tuple[int, int, int]]:
    """Updates, tokens of a block and blocks of a pass, for the whole training or for each part as blocks grow."""
    growth, end, limit = growth_of(parsed), int(parsed.max_update), max_tokens_of(parsed)
    starts = {0, end, *(step.update for step in (*growth.block, *growth.batch) if step.update < end)}
    for start, after in pairwise(sorted(starts)):
        length = value_at(growth.block, start, default=parsed.tokens_per_sample)
        tokens = value_at(growth.batch, start, default=limit or 0)
        yield after - start, length, min(filter(None, (int(parsed.batch_size or 0), tokens // length)))


def update_seconds(shape: Shape, blocks: int, *, update_freq: int = 1, drops: bool = True) -> float:
    """Seconds of an update of `update_freq` passes over full blocks on the reference."""
    tokens, length = blocks * shape.tokens_per_sample, shape.tokens_per_sample
    layers = 1 - (1 - shape.predicted_share) / shape.num_layers  # the last one computes the predicted positions
    products, predicted = shape.flops(tokens=tokens), shape.predicted_share * tokens
    attention = layers * (shape.flops(tokens=tokens, pairs=tokens * length) - products)
    products = layers * products + shape.flops(tokens=0, predicted=predicted)
    of_elements = layers * shape.num_layers * 2 * (5 * shape.ffn_dim + (40 + 10 * drops) * shape.dim)
    moved = tokens * of_elements + predicted * shape.vocab_size * BYTES_OF_LOGIT
    forward, backward = ATTENTION[drops]  # a third of its FLOPs, and 2.5 times as many, with the products made again
    work = products / PRODUCTS + attention / 3 * (1 / forward + 2.5 / backward) + moved / BANDWIDTH
    launches = update_freq * (LAUNCHES + (LAUNCHES_OF_LAYER + LAUNCHES_OF_DROPOUT * drops) * shape.num_layers)
    of_weights = shape.num_parameters * (BYTES_OF_WEIGHT + (update_freq - 1) * BYTES_OF_SUM) / BANDWIDTH
    return max(update_freq * work + of_weights + launches * GAP_S, launches * HOST_S)


def activation_bytes(shape: Shape, *, size: int, drops: bool, is_eager: bool, recomputes: bool) -> float:
    """Bytes kept for the backward pass per input token; `size` of a number, e.

    A layer keeps e (8 h + 2 f) and two dropout masks of h, with f = 4 h the 34 s b h of Korthikanti et al. 2022
    ("Reducing Activation Recomputation in Large Transformer Models", section 4.1); with a gate 4 f; 2 h more where
    queries and keys are normalized or turned. Eager attention adds their 5 a s^2 b, fused kernels a number per head.
    With recomputation a layer keeps its input, and one at a time all of it. The LM head keeps vectors and logits.
    """
    h, of_ffn = shape.dim, (2 if shape.ffn_matrices == 2 else 4) * shape.ffn_dim
    changes_queries = shape.positions.is_rotary or bool(shape.options.get("qk_norm"))
    per_key = 4 + (size if size != 4 or drops else 0) + drops if is_eager else 4 / shape.tokens_per_sample
    layer: float = size * ((8 + 2 * changes_queries) * h + of_ffn) + 2 * h * drops
    layer += shape.num_heads * shape.tokens_per_sample * per_key
    layers = shape.num_layers * size * h + layer if recomputes else shape.num_layers * layer
    return layers + (size + drops) * h + shape.predicted_share * (4 * size * h + (size + 4) * shape.vocab_size)


def number_bytes(parsed: Namespace) -> int:
    """Bytes of a weight, an activation and a gradient."""
    names = ("fp16", "bf16", "memory_efficient_fp16", "memory_efficient_bf16")
    return 2 if any(getattr(parsed, name) for name in names) else 4


def uses(parsed: Namespace) -> tuple[bool, bool]:
    """True for dropout, and for layers whose activations are computed again."""
    return bool(getattr(parsed, "dropout", 0.1)), bool(getattr(parsed, "checkpoint_activations", False))


def memory_bytes(shape: Shape, parsed: Namespace, *, blocks: int) -> float:
    """Bytes of a GPU at the end of a forward pass, without the allocator's fragmentation.

    Weights, gradients and Adam's moments, with fp32 copies in half precision, and torch's DDP keeps gradients a second
    time without --gradient-as-bucket-view (Li et al. 2020, "PyTorch Distributed", section 4.2).
    """
    (drops, recomputes), size = uses(parsed), number_bytes(parsed)
    is_efficient = parsed.memory_efficient_fp16 or parsed.memory_efficient_bf16
    is_eager = getattr(parsed, "attention_backend", "auto") == "eager"
    kept = activation_bytes(shape, size=size, drops=drops, is_eager=is_eager, recomputes=recomputes)
    copies = 8 if not is_efficient else 4 * (parsed.optimizer == "roberta_adamw")
    has_buckets = parsed.distributed_world_size > 1 and not parsed.gradient_as_bucket_view
    of_weight = (16 if size == 4 else 12 + copies) + size * has_buckets
    return of_weight * shape.num_parameters + blocks * shape.tokens_per_sample * kept + CUDA_CONTEXT


def estimate(parsed: Namespace, *, gpu: str = "", gpu_memory_gb: float = 0.0, vocab_size: int = 0) -> str:
    """FLOPs in words, with hours and memory on GPUs; empty for other tasks, and for a training without --max-update."""
    if not all(hasattr(parsed, name) for name in ("mask_prob", "encoder_attention_heads")) or not parsed.max_update:
        return ""
    ranks, update_freq, shape = parsed.distributed_world_size, int(parsed.update_freq[0]), model_shape(parsed)
    shape = replace(shape, vocab_size=vocab_size or shape.vocab_size)
    (drops, recomputes), peak = uses(parsed), half_precision_peak(gpu)
    gpu, peak = (gpu, peak) if peak else (REFERENCE, half_precision_peak(REFERENCE))
    flops = seconds = memory = 0.0
    for updates, length, blocks in phases(parsed):
        part = replace(shape, tokens_per_sample=length)
        sequences = getattr(parsed, "update_sequences", None) or blocks * update_freq * ranks
        tokens, predicted = sequences * length, shape.predicted_share * sequences * length
        flops += updates * part.flops(tokens=tokens, pairs=tokens * length, predicted=predicted, sequences=sequences)
        seconds += updates * update_seconds(part, blocks, update_freq=update_freq, drops=drops)
        memory = max(memory, memory_bytes(part, parsed, blocks=blocks))
    words = [f"{flops:.3g} FLOPs with {shape.num_parameters / 1e6:,.1f} M parameters"]
    if not parsed.cpu and number_bytes(parsed) == 2:
        seconds *= half_precision_peak(REFERENCE) / peak * (4 / 3 if recomputes else 1)
        mfu = flops / seconds / ranks / peak
        time = f"{seconds / 3600:.3g} h" if seconds > 1800 else f"{seconds / 60:.2g} min"
        words.append(f"{time} on {ranks:,} x {gpu}, {100 * mfu:.0f} % of the peak (MFU)")
        words.append("not counted: network, validation, checkpoints")
    if not parsed.cpu:
        words.append(f"{memory / 1e9:.0f} GB of a GPU's memory")
    if not parsed.cpu and memory > 1e9 * gpu_memory_gb > 0:
        words.append(f"more than its {gpu_memory_gb:.0f} GB: lower --batch-size, or give --checkpoint-activations")
    return "; ".join(words)
