"""A recipe, a machine and the speed of one GPU -> `Training`, the input of `plan.py`; its FLOPs, and its memory.

Machines are YAML files with the fields of `Machine`, as slurm/machine.yaml; `gpu`, a name as in `models/flops.py`, may
stand for peak_tflops. Their network gives the time of a gradient all-reduce.

Memory on one GPU is weights, gradients, optimizer state and activations.

Letters: L layers, h model dimension, f feed-forward dimension, a heads, V vocabulary, s tokens in a block, m share of
the positions that are predicted, of which alone the LM head sees anything, e bytes per number in the model's type.
"""

from __future__ import annotations

import math
import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from roberta_plugin.launch import arguments as train_arguments
from roberta_plugin.launch.arguments import check_options
from roberta_plugin.launch.log import median_speed
from roberta_plugin.launch.options_file import read_yaml
from roberta_plugin.launch.recipe import LaunchSettings, complete
from roberta_plugin.models.checkpoints import ModelOnlyTask, NoInitialization
from roberta_plugin.models.config import SWITCHES, FastRobertaConfig
from roberta_plugin.models.encoder import num_ffn_matrices
from roberta_plugin.models.flops import half_precision_peak, training_flops
from roberta_plugin.models.positions import PositionScheme
from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.settings import REQUIRED, Checked, convert, setting

PAPER_VOCABULARY = (
    50_265  # the released roberta.base and roberta.large: 50,260 symbols, and <s> <pad> </s> <unk> <mask>
)
GROWN = sys.maxsize  # an update after all growth
_BLOCKS = 10_000  # enough for a whole number of predicted positions
_FURTHER = (
    "encoder_normalize_before",
    "no_layernorm_embedding",
    "untie_weights_roberta",
    "share_layers",
    "share_parts",
    *SWITCHES,
)


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
    predicts_next_sentence: bool = False
    num_segments: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    """Further options of the model, by their names in `FastRobertaConfig`."""

    @cached_property
    def num_parameters(self) -> int:
        """Number of trainable parameters, each of them once, of the model itself, without its memory."""
        sizes = {
            "encoder_layers": self.num_layers,
            "encoder_embed_dim": self.dim,
            "encoder_ffn_embed_dim": self.ffn_dim,
            "encoder_attention_heads": self.num_heads,
        }
        task: Any = ModelOnlyTask(_Symbols(self.vocab_size), self.max_positions)
        task.num_segments, task.predicts_next_sentence = self.num_segments, self.predicts_next_sentence
        with torch.device("meta"), NoInitialization():
            model = FastRobertaModel.build_model(Namespace(**sizes, **self.options), task)
        return sum(parameter.numel() for parameter in model.parameters())

    @cached_property
    def positions(self) -> PositionScheme:
        """Rotary positions and windows."""
        options = {"encoder_embed_dim": self.dim, "encoder_attention_heads": self.num_heads, **self.options}
        return PositionScheme.from_config(FastRobertaConfig(**options))

    @property
    def num_local_layers(self) -> int:
        """Layers that attend to a window alone."""
        return self.positions.num_local(self.num_layers)

    @property
    def ffn_matrices(self) -> int:
        """Matrices of a feed-forward layer."""
        return num_ffn_matrices(str(self.options.get("feed_forward", "plain")))


@dataclass(frozen=True)
class _Symbols:
    """What a model asks of a vocabulary."""

    number: int

    def __len__(self) -> int:
        return self.number

    def pad(self) -> int:
        """The id of <pad>."""
        return 1


def flops_per_token(shape: Shape) -> float:
    """FLOPs of a training step (forward and backward) per token of a full block, by `models/flops.py`:

        6 L (4 h^2 + 2 h f)  +  12 L h s  +  6 m (h^2 + h V)

    with 3 h f where the feed-forward is gated, and with next-sentence prediction 6 (h^2 + 2 h) / s more. This follows
    Narayanan et al. 2021 ("Efficient Large-Scale Language Model Training on GPU Clusters", section 5.1), except that
    there every position reaches the LM head and activations are recomputed. Embeddings, norms, softmax, dropout and the
    optimizer cost a few FLOPs per element and are not counted.
    """
    tokens = _BLOCKS * shape.tokens_per_sample
    predicted = round(shape.predicted_share * tokens)
    flops = flops_of(
        shape, tokens=tokens, pairs=tokens * shape.tokens_per_sample, predicted=predicted, sequences=_BLOCKS
    )
    return flops / tokens


def flops_of(shape: Shape, *, tokens: int, pairs: int, predicted: int, sequences: int) -> float:
    """FLOPs of forward and backward over so many sequences; `pairs` of positions attend to each other."""
    return training_flops(
        num_layers=shape.num_layers,
        dim=shape.dim,
        ffn_dim=shape.ffn_dim,
        ffn_matrices=shape.ffn_matrices,
        vocab_size=shape.vocab_size,
        num_tokens=tokens,
        num_pairs=pairs,
        num_predicted=predicted,
        num_next_sentences=sequences if shape.predicts_next_sentence else 0,
        num_local_layers=shape.num_local_layers,
        window=shape.positions.window or 0,
    )


ACHIEVED = 0.8  # share of the nominal bandwidth that NCCL reaches with large messages; an assumption
LATENCY_S = 10e-6  # per message between nodes; an assumption


@dataclass(frozen=True, kw_only=True)
class Machine(Checked):
    """A node and its network; nominal numbers from the vendor's data sheets."""

    name: str
    peak_tflops: float = setting(REQUIRED, "dense, in the 16-bit type", above=0)
    memory_gb: float = setting(REQUIRED, "of one GPU", above=0)
    inside_gb_s: float = setting(REQUIRED, "between GPUs of a node: per GPU and direction", above=0)
    between_gb_s: float = setting(REQUIRED, "between nodes: per node and direction", above=0)
    gpus_per_node: int = setting(8, "in the node", above=0)
    write_gb_s: float = setting(1.0, "of rank 0, onto the file system of the checkpoints; an assumption", above=0)
    price_per_gpu_hour: float | None = setting(None, "in any currency", smallest=0)


def read_machine(text: str) -> Machine:
    """The machine in this file.

    Raises:
        ValueError: if there is none, or for an unknown key, a missing one, or a bad value.
    """
    path = Path(text)
    if not path.is_file():
        raise ValueError(
            f"--machine {text} is no file: name a YAML file with the numbers of your nodes; slurm/machine.yaml of this "
            "plugin's repository has those of a DGX H100."
        )
    values = {"name": path.stem, **read_yaml(path)}
    gpu = values.pop("gpu", None)
    if gpu is not None and "peak_tflops" not in values:
        peak = half_precision_peak(str(gpu))
        if not peak:
            raise ValueError(f"{path}: the peak of the gpu {gpu!r} is not known: give peak_tflops, dense and in bf16.")
        values["peak_tflops"] = peak / 1e12
    try:
        return convert(Machine, values, where=str(path))
    except ValueError as error:
        where = "" if str(error).startswith(str(path)) else f"{path}: "
        raise ValueError(f"{where}{error}") from None


def all_reduce_seconds(num_bytes: float, *, num_gpus: int, machine: Machine) -> float:
    """Seconds of an all-reduce of `num_bytes` on every GPU.

        2 (g - 1) / g  S / B_inside  +  2 (n - 1) / n  S / B_between  +  2 (n - 1) latency

    A ring sends 2 (p - 1) / p of the data through each of p members, the minimum (Patarasuk and Yuan 2009, "Bandwidth
    optimal all-reduce algorithms for clusters of workstations"). The g GPUs of a node reduce-scatter among themselves,
    the n nodes all-reduce the parts over all their adapters at once, and the GPUs of each node gather the result.
    Bandwidths are multiplied by `ACHIEVED`.
    """
    inside = min(num_gpus, machine.gpus_per_node)
    nodes = -(-num_gpus // machine.gpus_per_node)
    seconds = _ring(num_bytes, inside, machine.inside_gb_s) + _ring(num_bytes, nodes, machine.between_gb_s)
    return seconds + 2 * (nodes - 1) * LATENCY_S


def _ring(num_bytes: float, members: int, gb_s: float) -> float:
    return 2 * (members - 1) / members * num_bytes / (gb_s * 1e9 * ACHIEVED)


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
    growth: float = 1.0  # FLOPs of a mean update / those of the largest, where blocks or batches grow
    has_dropout: bool = True
    has_eager_attention: bool = False
    recompute: bool = False
    save_minutes: float = 0.0  # between checkpoints by the clock; 0: none
    save_updates: int = 0  # between checkpoints by updates; 0: none
    may_differ: bool = True  # whether the GPUs' batches may differ by a sequence, as those of the pretraining task
    copies_gradients: bool = True  # into the buckets of torch's DDP: without --gradient-as-bucket-view
    overlaps: bool = True  # whether the all-reduce overlaps the backward pass: torch's DDP, not legacy_ddp

    @property
    def tokens_per_update(self) -> int:
        """Tokens per update on all GPUs together; the largest, where it grows."""
        return self.batch_sequences * self.shape.tokens_per_sample

    @property
    def flops(self) -> float:
        """FLOPs of the whole training, recomputation not counted."""
        return flops_per_token(self.shape) * self.tokens_per_update * self.num_updates * self.growth


def read_training(
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
    shape = model_shape(parsed)
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
    if not (parsed.batch_size or parsed.max_tokens):
        raise ValueError("The recipe has no --batch-size: add the largest batch that fits on one GPU.")
    original = train_arguments.parse(recipe.train)
    most, per_gpu = (blocks_of(each, GROWN) for each in (original, parsed))
    return Training(
        shape=shape,
        precision=Precision(
            is_half=bool(parsed.fp16 or parsed.bf16 or parsed.memory_efficient_fp16 or parsed.memory_efficient_bf16),
            is_memory_efficient=bool(parsed.memory_efficient_fp16 or parsed.memory_efficient_bf16),
            has_own_masters=parsed.optimizer == "roberta_adamw",
        ),
        batch_sequences=getattr(parsed, "update_sequences", None)
        or per_gpu * int(parsed.update_freq[0]) * recipe.num_gpus,
        most_per_gpu=most,
        num_updates=parsed.max_update,
        tokens_per_second=tokens_per_second,
        growth=growth_share(parsed, shape),
        has_dropout=getattr(parsed, "dropout", 0.1) > 0,
        has_eager_attention=getattr(parsed, "attention_backend", "auto") == "eager",
        may_differ=parsed.task == train_arguments.OUR_TASK and bool(parsed.batch_size),
        copies_gradients=not parsed.gradient_as_bucket_view,
        overlaps=parsed.ddp_backend not in ("legacy_ddp", "no_c10d"),
        save_minutes=recipe.checkpoint_minutes,
        save_updates=int(parsed.save_interval_updates or 0),
        recompute=bool(getattr(parsed, "checkpoint_activations", False)),
    )


def blocks_of(parsed: Namespace, update: int) -> int:
    """Blocks of a batch of one GPU after so many updates."""
    from roberta_plugin.tasks.growth import value_at
    from roberta_plugin.tasks.masked_lm_options import growth_of, max_tokens_of

    growth, limit = growth_of(parsed), max_tokens_of(parsed)
    length = value_at(growth.block, update, default=parsed.tokens_per_sample)
    tokens = value_at(growth.batch, update, default=limit or 0)
    return min(filter(None, (int(parsed.batch_size or 0), tokens // length)))


def growth_share(parsed: Namespace, shape: Shape) -> float:
    """FLOPs of the training, relative to one whose updates are all the largest; 1 where nothing grows."""
    from roberta_plugin.tasks.growth import value_at
    from roberta_plugin.tasks.masked_lm_options import growth_of

    growth, end = growth_of(parsed), int(parsed.max_update)

    def flops(update: int) -> float:
        length = value_at(growth.block, update, default=parsed.tokens_per_sample)
        return blocks_of(parsed, update) * length * flops_per_token(replace(shape, tokens_per_sample=length))

    starts = sorted({0, end, *(step.update for step in (*growth.block, *growth.batch) if step.update < end)})
    return sum((after - start) * flops(start) for start, after in pairwise(starts)) / (end * flops(GROWN))


def model_shape(parsed: Namespace) -> Shape:
    """Model sizes from fairseq's options."""
    has_pairs = str(getattr(parsed, "input_format", "")).endswith("-pair")
    further = {name: getattr(parsed, name, None) for name in _FURTHER}
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
        num_segments=2 if has_pairs and not parsed.no_segment_embeddings else 0,
        options={
            name: value if isinstance(value, bool | int | float) else str(value)
            for name, value in further.items()
            if value is not None and value != getattr(FastRobertaConfig, name)
        },
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


CUDA_CONTEXT = 1.0e9  # bytes; assumed size of the driver's, cuBLAS's and NCCL's buffers
SHARE_TO_FILL = 0.9  # of a GPU's memory; the rest is for the allocator's fragmentation and the kernels' workspaces


def checkpoint_bytes(shape: Shape, precision: Precision) -> float:
    """Bytes of a checkpoint: weights and both moments in fp32; in half precision also the masters (a bound).

    Example: 16 bytes per parameter in bf16, 5.7 GB for the 355 M parameters of large.
    """
    return (16 if precision.is_half else 12) * shape.num_parameters


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on one GPU."""

    states: float
    buckets: float
    activations: float

    @property
    def total(self) -> float:
        """The sum, with the CUDA context."""
        return self.states + self.buckets + self.activations + CUDA_CONTEXT


def estimate_memory(training: Training, *, batch_size: int, num_gpus: int) -> Memory:
    """Peak memory, reached at the end of the forward pass; the allocator's fragmentation is not included.

    On several GPUs torch's DDP keeps a second copy of the gradients in its buckets (Li et al. 2020, "PyTorch
    Distributed", section 4.2), which --gradient-as-bucket-view saves.
    """
    shape, precision = training.shape, training.precision
    num_tokens = batch_size * shape.tokens_per_sample
    return Memory(
        states=precision.state_size * shape.num_parameters,
        buckets=precision.size * shape.num_parameters if num_gpus > 1 and training.copies_gradients else 0,
        activations=num_tokens * activation_bytes_per_token(training) + joined_projection_bytes(training),
    )


def largest_batch(training: Training, *, num_gpus: int, gpu_bytes: float) -> int:
    """Blocks in one forward pass that fill `SHARE_TO_FILL` of a GPU of `gpu_bytes`; 0 if not even one fits.

    Example: 10 GB fixed, 0.5 GB per block, a GPU of 80 GB  ->  (0.9 x 80 - 10) / 0.5 = 124 blocks.
    """
    one, two = (estimate_memory(training, batch_size=size, num_gpus=num_gpus).total for size in (1, 2))
    per_block = two - one
    return max(0, math.floor((SHARE_TO_FILL * gpu_bytes - (one - per_block)) / per_block))


def activation_bytes_per_token(training: Training) -> float:
    """Bytes kept for the backward pass per input token.

    A layer keeps e (8 h + 2 f) and two dropout masks of h: the inputs of both norms, of the joined projection, of the
    output projection and of fc1, and q, k, v (8 h); the inputs of the activation and of fc2 (2 f). With f = 4 h and
    e = 2 this is the 34 s b h of Korthikanti et al. 2022 ("Reducing Activation Recomputation in Large Transformer
    Models", section 4.1). A gated layer has 4 f: both products, the activation, and the input of fc2. Queries and keys
    that are normalized or turned add 2 h, what they were before. Eager attention adds what they count as
    5 a s^2 b: the attention weights in fp32 and in e, and a mask; in a local layer for two windows instead of s, since
    each window is computed with half of one on either side. Fused kernels (flash) keep one fp32 number per head
    instead, and norms are fused ones. With recomputation a layer keeps only its input, and one layer at a time keeps
    all of the above.

    The LM head keeps four vectors per predicted position and, on the plain path, its logits in e and in fp32; the fused
    path of newer versions of torch keeps less.
    """
    shape, size, masks = training.shape, training.precision.size, int(training.has_dropout)
    h = shape.dim
    of_ffn = (2 if shape.ffn_matrices == 2 else 4) * shape.ffn_dim
    changes_queries = shape.positions.is_rotary or bool(shape.options.get("qk_norm"))
    layer = size * ((8 + 2 * changes_queries) * h + of_ffn) + 2 * h * masks
    if training.has_eager_attention:
        in_window = min(shape.tokens_per_sample, 2 * (shape.positions.window or 0))
        per_key = shape.num_heads * (4 + (size if size != 4 or masks else 0) + masks)
        saved = shape.num_local_layers * (shape.tokens_per_sample - in_window) * per_key
        layer += shape.tokens_per_sample * per_key
    else:
        saved = 0
        layer += 4 * shape.num_heads
    layers = shape.num_layers * size * h + layer if training.recompute else shape.num_layers * layer - saved
    embeddings = size * h + masks * h
    head = shape.predicted_share * (4 * size * h + (size + 4) * shape.vocab_size)
    return layers + embeddings + head


def joined_projection_bytes(training: Training) -> float:
    """Bytes of the joined q, k and v matrix that models/attention.py builds for one matmul: 3 h^2 numbers per layer."""
    num_layers = 1 if training.recompute else training.shape.num_layers
    return num_layers * 3 * training.shape.dim**2 * training.precision.size
