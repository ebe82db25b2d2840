"""Kernels, launches, bytes, FLOPs and host waits of a training step on a GPU, counted without one.

    python -m tests.benchmarks.count_gpu_step                      # base, 64 x 512, packed rows, bf16: 20 seconds
    python -m tests.benchmarks.count_gpu_step --steps              # the steps of the results file, one after the other
    python -m tests.benchmarks.count_gpu_step --batch-size 8 --dropout 0 --layout padded

The step runs on fake CUDA tensors (tests/fake_cuda.py), operator by operator. **Counted, not measured**: bytes are those
of each operator's inputs and outputs, without what caches save; launches are those of torch's own kernels. What a card
would take is an estimate from three terms:

    work      on an H100 SXM: products at 600 TFLOP/s, flash attention at 200 forward and 160 backward (without dropout
              280 and 200), everything else at 2.9 TB/s
    launches  1.5 microseconds between two kernels
    host      18 microseconds a launch; what is more than the GPU's own time, the GPU waits

An update takes the larger of GPU (work and launches) and host. Compiled code cannot be counted here, because a graph is
one call.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from roberta_plugin.models.flops import training_flops
from tests.benchmarks.harness import Report, options
from tests.benchmarks.trainer_waits import waits_of_update
from tests.benchmarks.training_steps import SHAPES, Step, fairseqs_model, make_batch, step_of_model
from tests.fake_cuda import WaitError, Watch, fake_cuda, moved

PEAK, PRODUCTS, BANDWIDTH = 989e12, 600e12, 2.9e12  # of an H100 SXM, in bf16: FLOP/s, and bytes a second
ATTENTION = {False: (280e12, 200e12), True: (200e12, 160e12)}  # flash: forward and backward, without and with dropout
EFFICIENT = (130e12, 90e12)  # the kernel that takes a mask
GAP_S, HOST_S = 1.5e-6, 18e-6  # for each launch
PRODUCT_NAMES = ("mm", "addmm", "bmm", "baddbmm", "_scaled_mm")

# Operators that are several kernels, or none though they are no views.
LAUNCHES = {
    "select_backward": 2,  # zeros, and a copy
    "slice_backward": 2,
    "constant_pad_nd": 2,
    "native_layer_norm_backward": 2,  # of x, and of weight and bias
    "_flash_attention_backward": 3,  # products of outputs and gradients, the kernel, dq from fp32
    "_scaled_dot_product_flash_attention_backward": 3,
    "_scaled_dot_product_efficient_attention_backward": 3,
    "embedding_dense_backward": 6,  # sorts the ids
    "nll_loss_backward": 2,
    **dict.fromkeys(("empty", "empty_like", "new_empty", "empty_strided", "detach", "_unsafe_view"), 0),
    **dict.fromkeys(("_reshape_alias", "lift_fresh", "new_empty_strided", "_local_scalar_dense"), 0),
}
CHUNK, MOST_BLOCKS = 65536, 320  # of torch's kernels over lists of tensors: numbers of a block, blocks of a launch
MOST_TENSORS = (110, 64, 48, 36, 30)  # of a launch, by the number of lists

GROUPS = {
    "matrix products": PRODUCT_NAMES,
    "gelu": ("gelu", "gelu_backward"),
    "norms of layers": (
        "native_layer_norm",
        "native_layer_norm_backward",
        "_fused_rms_norm",
        "_fused_rms_norm_backward",
    ),
    "dropout": ("native_dropout", "native_dropout_backward"),
    "residual sums": ("add", "add_"),
    "bias gradients": ("sum",),
    "gradients in zeros, joined gradients": ("select_backward", "slice_backward", "stack", "cat", "new_zeros", "zeros"),
    "loss": ("_log_softmax", "_log_softmax_backward_data", "nll_loss_forward", "nll_loss_backward"),
    "casts and copies": ("_to_copy", "clone", "copy_", "constant_pad_nd"),
    "embeddings": ("embedding", "embedding_dense_backward", "gather", "scatter_add"),
}


@dataclass
class Count:
    """What a group of operators does."""

    kernels: int = 0
    launches: int = 0
    bytes: float = 0.0
    flops: float = 0.0
    seconds: float = 0.0

    def add(self, other: Count) -> None:
        """Add another group's."""
        for name in ("kernels", "launches", "bytes", "flops", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass
class Counted:
    """A step by groups of operators, and its reads of the device."""

    groups: dict[str, Count] = field(default_factory=dict)
    waits: list[str] = field(default_factory=list)

    @property
    def total(self) -> Count:
        """All groups together."""
        total = Count()
        for group in self.groups.values():
            total.add(group)
        return total


class Counter(Watch):
    """Counts what each operator does on the device; where the host would wait, it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.counted = Counted()

    def _check_waits(self, name: str, args: Any, kwargs: Any, tensors: list[Tensor]) -> None:
        try:
            super()._check_waits(name, args, kwargs, tensors)
        except WaitError as error:
            self.counted.waits.append(str(error))

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(function, types, args, kwargs)
        read, written = tensors_in((args, kwargs or {})), tensors_in(result)
        if any(tensor.device.type == "cuda" for tensor in (*read, *written)):
            name = function.overloadpacket.__name__
            launches = num_launches(function, args, written)
            if launches:
                found = Count(1, launches, num_bytes(name, read, written), num_flops(function, args, kwargs, result))
                found.seconds = seconds_of(name, found, args)
                self.counted.groups.setdefault(group_of(name), Count()).add(found)
        return result


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors in nested lists and dicts."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def num_launches(function: Any, args: Any, written: list[Tensor]) -> int:
    """Kernels that torch starts for this operator."""
    name = function.overloadpacket.__name__
    if name in LAUNCHES:
        return LAUNCHES[name]
    if function.is_view or function.namespace == "prim":
        return 0
    if name.startswith("_foreach_") or name.startswith("_fused_adam"):
        lists = [entry for entry in args if isinstance(entry, list | tuple) and entry and torch.is_tensor(entry[0])]
        lists = lists[:4] if name.startswith("_fused") else lists
        types = {tensor.dtype for entry in lists for tensor in entry}
        if len(types) > 1 and name != "_foreach_copy_":  # the only one that mixes types in one kernel
            return len(lists[0])
        return num_launches_over(lists[0], len(lists)) + (name == "_foreach_norm")
    return 1


def num_launches_over(tensors: list[Tensor], num_lists: int) -> int:
    """Launches of torch's kernel over lists of tensors, which has room for so many tensors and blocks."""
    launches = in_launch = blocks = 0
    for tensor in tensors:
        in_launch += 1
        chunks = max(1, math.ceil(tensor.numel() / CHUNK))
        for chunk in range(1, chunks + 1):
            blocks += 1
            is_full = blocks == MOST_BLOCKS or (in_launch == MOST_TENSORS[num_lists - 1] and chunk == chunks)
            if is_full:
                launches, blocks, in_launch = launches + 1, 0, int(chunk < chunks)
    return launches + bool(blocks)


def num_bytes(name: str, read: list[Tensor], written: list[Tensor]) -> float:
    """Bytes that move: of each tensor once, and of a table of embeddings the rows that are read."""
    size = {id(tensor): in_memory(tensor) for tensor in (*read, *written)}
    if name in ("embedding", "gather", "index_select"):
        return float(2 * sum(size[id(tensor)] for tensor in written) + sum(size[id(tensor)] for tensor in read[1:]))
    in_place = {id(tensor) for tensor in written} & {id(tensor) for tensor in read}
    return float(sum(size.values()) + sum(size[number] for number in in_place))


def in_memory(tensor: Tensor) -> int:
    """Bytes of a tensor; of one that is expanded, those that there are."""
    numbers = math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or size == 0)
    return numbers * tensor.element_size()


def num_flops(function: Any, args: Any, kwargs: Any, result: Any) -> float:
    """FLOPs of products and attention; of packed rows as if all sequences were as long as the longest."""
    name = function.overloadpacket.__name__
    if name.startswith("_flash_attention"):
        q = args[1] if name.endswith("backward") else args[0]
        longest = args[9] if name.endswith("backward") else args[6]
        return 4.0 * q.numel() * longest * (2.5 if name.endswith("backward") else 1)
    formula = flop_registry.get(function.overloadpacket)
    return float(formula(*args, **(kwargs or {}), out_val=result)) if formula else 0.0


def seconds_of(name: str, count: Count, args: Any) -> float:
    """Estimate of the kernels' own time."""
    if "attention" in name:
        drops = any(isinstance(value, float) and 0 < value < 1 for value in args)
        speeds = EFFICIENT if "efficient" in name else ATTENTION[drops]
        return count.flops / speeds[name.endswith("backward")]
    return max(count.bytes / BANDWIDTH, count.flops / PRODUCTS)


def group_of(name: str) -> str:
    """The row of the table."""
    if "attention" in name:
        return "attention"
    if name.startswith(("_foreach_", "_fused_adam", "linalg_vector_norm")):
        return "optimizer, norm, fp32 copies"
    return next((group for group, names in GROUPS.items() if name in names), "other")


def count(step: Step) -> Counted:
    """The second step of this kind; the first one sets up what lasts."""
    batch, model = make_batch(replace(step, device="cpu"), 0), fairseqs_model(step)
    with fake_cuda(name="NVIDIA H100", memory=85e9) as mode:
        run, batch = step_of_model(step, moved(model, mode, torch.bfloat16)), moved(batch, mode)
        run(batch)
        counter = Counter()
        with counter:
            run(batch)
    return counter.counted


def estimate(step: Step, counted: Counted) -> tuple[float, float, float]:
    """Seconds of GPU and host, and the MFU, in percent."""
    layers, dim, ffn_dim, _ = SHAPES[step.arch]
    total, tokens = counted.total, step.batch_size * step.length
    gpu, host = total.seconds + GAP_S * total.launches, HOST_S * total.launches
    flops = training_flops(
        num_layers=layers,
        dim=dim,
        ffn_dim=ffn_dim,
        vocab_size=step.vocab_size,
        num_tokens=tokens,
        num_pairs=tokens * step.length,
        num_predicted=int(0.15 * tokens),
    )
    return gpu, host, 100 * flops / PEAK / max(gpu, host)


def steps_of_results() -> Iterator[tuple[str, Step]]:
    """Rows of the results file."""
    base = Step(packed=True)
    yield "base, 64 blocks", base
    yield "base, 32 blocks", replace(base, batch_size=32)
    yield "base, 8 blocks", replace(base, batch_size=8)
    yield "base, 64 blocks, no dropout", replace(base, dropout=0.0, attention_dropout=0.0)
    yield "base, 64 blocks, padded", replace(base, packed=False)
    yield "base with ModernBERT's layers, 64 blocks", replace(base, modern=True)
    yield "large, 32 blocks", replace(base, arch="large", batch_size=32)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--steps", action="store_true", help="the steps of the results file, instead of one")
    parser.add_argument("--arch", choices=SHAPES, default="base", help="size of the model")
    parser.add_argument("--batch-size", type=int, default=64, help="blocks")
    parser.add_argument("--dropout", type=float, default=0.1, help="of the model and of attention")
    parser.add_argument("--layout", choices=("packed", "padded"), default="packed", help="of the batch")
    arguments = parser.parse_args()
    drops = {"dropout": arguments.dropout, "attention_dropout": arguments.dropout}
    one = Step(arch=arguments.arch, batch_size=arguments.batch_size, packed=arguments.layout == "packed", **drops)
    name = f"{one.arch}, {one.batch_size} blocks, {arguments.layout}, dropout {one.dropout:g}"
    steps = list(steps_of_results()) if arguments.steps else [(name, one)]
    title = "A training step on a GPU: counted, not measured"
    about = __doc__.split("\n\n", 2)[2]
    report = Report("gpu_counts", title, about, f"none; fake CUDA tensors of torch {torch.__version__}")
    found = [(name, step, count(step)) for name, step in steps]
    rows = []
    for name, step, counted in found:
        gpu, host, mfu = estimate(step, counted)
        total = counted.total
        numbers = (total.kernels, total.launches, f"{total.bytes / 1e9:.1f}", f"{total.flops / 1e12:.1f}")
        rows.append((name, *numbers, len(counted.waits), f"{1e3 * gpu:.1f}", f"{1e3 * host:.1f}", f"{mfu:.1f}"))
    head = (
        "step",
        "kernels",
        "launches",
        "GB",
        "TFLOP",
        "waits",
        "GPU ms, estimate",
        "host ms, estimate",
        "MFU %, estimate",
    )
    report.rows(head, rows, title="Steps of blocks of 512 tokens in bf16", texts=1)
    name, _, counted = found[0]
    rows = [
        (group, c.kernels, c.launches, f"{c.bytes / 1e9:.1f}", f"{c.flops / 1e12:.1f}", f"{1e3 * c.seconds:.1f}")
        for group, c in sorted(counted.groups.items(), key=lambda entry: -entry[1].seconds)
    ]
    head = ("operators", "kernels", "launches", "GB", "TFLOP", "ms, estimate")
    report.rows(head, rows, title=f"Where the time goes: {name}", texts=1)
    if arguments.steps:
        rows = []
        for ranks in (False, True):
            before, after = (waits_of_update(has_ranks=ranks, reads_late=late) for late in (False, True))
            rows.append(("several GPUs" if ranks else "one GPU", len(before), len(after), ", ".join(before)))
        head = ("training", "at once", "late", "places of the former")
        title = "Waits of an update in fairseq's trainer, if it reads its numbers at once and if the next one does"
        report.rows(head, rows, title=title, texts=1)
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
