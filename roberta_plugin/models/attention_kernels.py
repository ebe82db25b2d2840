"""The signature of attention backends; attention on a CPU, and attention of packed rows on a GPU.

Example of a packed row: three sequences of 4, 2 and 3 positions lie in a row of 9. cu_seqlens is [0, 4, 6, 9], and
max_seqlen is 4.

On a CPU in fp32, one head of one sequence is computed at a time, so that its weights stay in the cache. All six matmuls
of forward and backward go through oneDNN, or MKL where that is faster; dropout uses the random numbers of `cpu.py`.
Where products may be in bf16 (`cpu.rounds`), all tensors between two of them are in bf16 too: logits, weights and their
gradients. The sums of a softmax stay in fp32. The weights of very long sequences are not kept for the backward pass but
computed twice, a few queries at once, with the same random numbers: memory is linear in the length.

Packed rows go through the flash-attention kernel that torch itself contains: `F.scaled_dot_product_attention` reaches
it for padded batches without a mask only, and `torch.nn.attention.varlen` has no dropout. The operator below both of
them, `aten::_flash_attention_forward`, takes the bounds of sequences and a dropout probability, and torch has its
derivative. No other package is needed.

Shapes: B blocks, H heads, T positions, Q positions that attend (all, or the predicted ones), K head dimension; S
sequences, N positions of a row; q and t positions of one sequence. A packed row has B = 1 and `sequences`; a padded
batch has none.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from roberta_plugin.models.cpu import LEVELS, draw_words, keep_only, kept, plain_linear, rounds, scale_of_kept


class Sequences(NamedTuple):
    """Bounds of the sequences of a row, for the positions that attend (q) and those attended to (k).

    Both have the same number of sequences. A sequence may be empty, so that the number of sequences can be the same in
    every batch.
    """

    cu_seqlens_q: Tensor
    """Sequence s holds the positions cu_seqlens_q[s] to cu_seqlens_q[s + 1] (S + 1,), int32, from 0 to N."""
    cu_seqlens_k: Tensor
    """Bounds of the positions attended to (S + 1,)."""
    max_seqlen_q: int
    """No sequence has more positions that attend; an int, so no kernel launch waits for the device."""
    max_seqlen_k: int
    """No sequence has more positions attended to."""

    @classmethod
    def for_row(cls, packing: Mapping[str, Any]) -> Sequences:
        """Every position of the row attends to its own sequence; `packing` as in `FastRobertaModel.forward`."""
        cu_seqlens, max_seqlen = packing["cu_seqlens"], packing["max_seqlen"]
        return cls(cu_seqlens_q=cu_seqlens, cu_seqlens_k=cu_seqlens, max_seqlen_q=max_seqlen, max_seqlen_k=max_seqlen)

    def for_predicted(self, predicted: Mapping[str, Any]) -> Sequences:
        """Only the predicted positions attend, each to its own sequence."""
        return self._replace(cu_seqlens_q=predicted["cu_seqlens"], max_seqlen_q=predicted["max_seqlen"])

    def is_same_sequence(self, num_q: int, num_k: int) -> Tensor:
        """True where a position may attend to another (num_q, num_k), bool."""
        device = self.cu_seqlens_q.device
        of_q = torch.bucketize(torch.arange(num_q, device=device), self.cu_seqlens_q[1:], right=True)
        of_k = torch.bucketize(torch.arange(num_k, device=device), self.cu_seqlens_k[1:], right=True)
        return of_q[:, None] == of_k[None, :]


def first_positions(tokens: Tensor, packing: Mapping[str, Any] | None) -> dict[str, Any]:
    """The position of each sequence's <s>, in the form of `predicted`: the last layer is computed for these only.

    Example: for the row above, {"positions": [[0, 4, 6]], "cu_seqlens": [0, 1, 2, 3], "max_seqlen": 1}.
    """
    if packing is None:
        return {"positions": tokens.new_zeros(tokens.size(0), 1)}  # (B, 1); `len` would fix B in an exported graph
    cu_seqlens = packing["cu_seqlens"]
    return {
        "positions": cu_seqlens[None, :-1].long(),  # (S + 1,) -> (1, S)
        "cu_seqlens": torch.arange(len(cu_seqlens), dtype=cu_seqlens.dtype, device=cu_seqlens.device),
        "max_seqlen": 1,
    }


def first_of_predicted(features: Tensor, layout: Mapping[str, Any]) -> Tensor:
    """Features (B, Q, D) of which the first of each sequence is its <s> -> features of <s> (S, D).

    Args:
        features: of padded blocks, or of one packed row.
        layout: with "cu_seqlens" (S + 1,) in a packed row, else without; the padding at the end of a row gives some
            rows more, without a meaning.
    """
    cu_seqlens = layout.get("cu_seqlens")
    if cu_seqlens is None:
        return features[:, 0]  # (B, Q, D) -> (B, D)
    return features[0, cu_seqlens[:-1].long().clamp(max=features.size(1) - 1)]  # (1, Q, D) -> (S, D)


class AttentionMask(NamedTuple):
    """The positions that each position may attend to: all, all but padding, its own sequence, and those near it."""

    is_padding: Tensor | None = None
    """Positions that may not be attended to (B, T)."""
    sequences: Sequences | None = None
    """The sequences of a packed row."""
    reach: int | None = None
    """Positions on either side that may be attended to; None: all."""
    places: Tensor | None = None
    """Places in their rows of the positions that attend (B, Q); None: all of them do."""

    def allowed(self, q: Tensor, k: Tensor) -> Tensor | None:
        """As a bool tensor that broadcasts to (B, H, Q, T), True where attention is allowed; None: everywhere."""
        allowed = None
        if self.sequences is not None:
            allowed = self.sequences.is_same_sequence(q.size(2), k.size(2))
        elif self.is_padding is not None:
            allowed = ~self.is_padding[:, None, None, :]
        if self.reach is None:
            return allowed
        all_places = torch.arange(k.size(2), device=k.device)
        places = all_places if self.places is None else self.places[:, None]  # (B, Q) -> (B, 1, Q)
        near = (places[..., None] - all_places).abs() <= self.reach
        return near if allowed is None else never_empty(near & allowed)

    def for_all(self, q: Tensor, length: int) -> tuple[AttentionMask, Tensor]:
        """The mask of whole rows, and q (B, H, Q, K) at its places in rows (B, H, T, K), where it is 0 elsewhere.

        Several at one place are the same, and one of them takes the gradient of all.
        """
        assert self.places is not None
        number = torch.arange(q.size(2), device=q.device).expand_as(self.places)
        at = self.places.new_full((len(q), length), q.size(2)).scatter(1, self.places, number)  # 0 is at Q
        rows = pick(F.pad(q, (0, 0, 0, 1)), at)
        sequences = self.sequences
        if sequences is not None:
            sequences = Sequences.for_row({"cu_seqlens": sequences.cu_seqlens_k, "max_seqlen": sequences.max_seqlen_k})
        return self._replace(places=None, sequences=sequences), rows


def pick(x: Tensor, places: Tensor) -> Tensor:
    """(B, H, T, K) at places (B, Q) -> (B, H, Q, K)."""
    return x.gather(2, places[:, None, :, None].expand(-1, x.size(1), -1, x.size(3)))


def never_empty(allowed: Tensor) -> Tensor:
    """Let positions that may attend to none, which are padding, attend to all, as some kernels make NaN of them."""
    return allowed | ~allowed.any(dim=-1, keepdim=True)


class AttentionBackend(ABC):
    """softmax(q k^T / sqrt(K)) v, with dropout of the attention weights.

    Attributes:
        name: its name for --attention-backend.
        serves_padded: whether it takes padded batches.
    """

    name: str
    serves_padded = True

    def check_options(self, *, dropout_prob: float, has_windows: bool = False) -> None:  # noqa: B027  (takes all)
        """Raise a ValueError that names the option if this backend does not support a dropout or local windows."""

    def assert_supported(self, device: torch.device, *, dropout_prob: float) -> None:  # noqa: B027  (runs everywhere)
        """Raise a RuntimeError that names what is missing, if this backend cannot run here."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        dropout_prob: float,
        is_padding: Tensor | None = None,
        sequences: Sequences | None = None,
        reach: int | None = None,
        places: Tensor | None = None,
    ) -> Tensor:
        """q (B, H, Q, K), k and v (B, H, T, K) -> (B, H, Q, K).

        Positions where `is_padding` (B, T) is set get no attention; with `sequences`, a position attends only to its
        own sequence, and with `reach` to that many positions on either side. Then `places` (B, Q) are the places of q,
        if it is not all of the row. A row that is all padding gives finite, meaningless numbers.
        """
        return self.attend(q, k, v, AttentionMask(is_padding, sequences, reach, places), dropout_prob)

    @abstractmethod
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, dropout_prob: float) -> Tensor:
        """As `__call__`, with padding and sequences in one `mask`."""


class MaskedAttention(AttentionBackend):
    """A backend that is given a mask of positions.

    With a `reach` that is short beside the row, C windows of queries attend to themselves and to one reach on either
    side, as blocks of their own: memory is linear in the length. Many single positions (`places`) do so too.
    """

    @override
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, dropout_prob: float) -> Tensor:
        reach, length = mask.reach, k.size(2)
        if (
            reach is None or torch.compiler.is_exporting() or min(q.size(2), length) <= 4 * reach
        ):  # two windows, or a graph
            return self.attend_where(mask.allowed(q, k), q, k, v, dropout_prob)
        if mask.places is not None:
            of_rows, rows = mask.for_all(q, length)
            return pick(self.attend(rows, k, v, of_rows, dropout_prob), mask.places)
        size = 2 * reach
        number = -(-length // size)
        batch = len(q)
        q = F.pad(q, (0, 0, 0, number * size - length)).unflatten(2, (number, size))  # -> (B, H, C, W, K)
        k, v = (_spans(x, reach, number).transpose(-1, -2) for x in (k, v))  # (B, H, T, K) -> (B, H, C, 2 W, K)
        q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))  # -> (B C, H, ...)
        allowed = self._allowed(mask, reach, number, length, k.device).expand(batch, -1, -1, -1)
        attended = self.attend_where(allowed.flatten(0, 1)[:, None], q, k, v, dropout_prob)
        blocks: Tensor = attended.unflatten(0, (-1, number)).transpose(1, 2)  # (B C, H, W, K) -> (B, H, C, W, K)
        return blocks.flatten(2, 3)[:, :, :length]

    @staticmethod
    def _allowed(mask: AttentionMask, reach: int, number: int, length: int, device: torch.device) -> Tensor:
        """True where a query may attend to a key of its span (B or 1, C, W, 2 W)."""
        size = 2 * reach
        offsets = torch.arange(2 * size, device=device) - torch.arange(size, device=device)[:, None]
        is_near = (offsets >= 0) & (offsets <= 2 * reach)  # a span begins one reach before its window
        if mask.sequences is not None:
            sequence = torch.bucketize(torch.arange(length, device=device), mask.sequences.cu_seqlens_k[1:], right=True)
            rows = F.pad(sequence, (0, number * size - length), value=-2).unflatten(0, (number, size))  # -> (C, W)
            of_keys = _spans(sequence[None, None, :, None], reach, number, value=-1).flatten(0, 3)
            return never_empty(is_near & (rows[:, :, None] == of_keys[:, None]))[None]
        is_token = torch.ones(1, length, dtype=torch.bool, device=device)
        is_token = is_token if mask.is_padding is None else ~mask.is_padding
        keys = _spans(is_token[:, None, :, None], reach, number, value=False)[:, 0, :, 0]  # -> (B, C, 2 W)
        return never_empty(is_near & keys[:, :, None])

    @abstractmethod
    def attend_where(self, allowed: Tensor | None, q: Tensor, k: Tensor, v: Tensor, dropout_prob: float) -> Tensor:
        """Attention where `allowed`, which broadcasts to (B, H, Q, T), is True; None: everywhere."""


def _spans(x: Tensor, reach: int, number: int, *, value: float = 0) -> Tensor:
    """(B, H, T, K) -> (B, H, C, K, 2 W): each window of W = 2 `reach` positions with one reach on either side."""
    size = 2 * reach
    return F.pad(x, (0, 0, reach, number * size - x.size(2) + reach), value=value).unfold(2, 2 * size, size)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, dropout_prob: float) -> Tensor:
    """softmax(q k^T / sqrt(K)) v of q (B, H, Q, K), k and v (B, H, T, K); see `AttentionBackend`."""
    sequences = mask.sequences
    if sequences is None:
        # A row with only padding gets zero weights, as in sdpa, instead of the softmax of minus infinity
        is_empty = [False] * len(q) if mask.is_padding is None else mask.is_padding.all(dim=1).tolist()
        whole = slice(0, q.size(2)), slice(0, k.size(2))
        segments = [Segment(block, *whole) for block in range(len(q)) if not is_empty[block]]
    else:
        bounds = zip(pairwise(sequences.cu_seqlens_q.tolist()), pairwise(sequences.cu_seqlens_k.tolist()), strict=True)
        segments = [Segment(0, slice(*of_q), slice(*of_k)) for of_q, of_k in bounds if of_q[0] < of_q[1]]
    if mask.reach is not None:
        segments = [part for segment in segments for part in _windows(segment, mask, mask.reach)]
    keeps = q.size(1) * sum(rows * columns for rows, columns in (segment.shape for segment in segments)) <= MOST_WEIGHTS
    segments = segments if keeps else [part for segment in segments for part in segment.parts()]
    level = round(dropout_prob * LEVELS)
    output: Tensor = _Attention.apply(q, k, v, mask.is_padding, segments, level, keeps)  # type: ignore[no-untyped-call]
    return output


MOST_WEIGHTS = 2**28  # that are kept for the backward pass; weights of longer sequences are computed twice
WEIGHTS_AT_ONCE = 2**21  # of these
WINDOW_QUERIES = 128  # that are computed at once, or a whole window, if that is more


class Segment(NamedTuple):
    """Positions of one block that attend to each other."""

    block: int
    q: slice
    k: slice
    hidden: Tensor | None = None
    """Pairs (q, t) that do not attend to each other, in a part of a sequence with a local window."""
    is_part: bool = False
    """True if other segments have some of these keys, too."""

    @property
    def shape(self) -> tuple[int, int]:
        """(q, t)."""
        return self.q.stop - self.q.start, self.k.stop - self.k.start

    def parts(self) -> Iterator[Segment]:
        """Consecutive parts of the queries, each with all keys."""
        num_queries, num_keys = self.shape
        step = max(1, WEIGHTS_AT_ONCE // max(num_keys, 1))
        for start in range(0, num_queries, step):
            at = slice(self.q.start + start, min(self.q.start + start + step, self.q.stop))
            hidden = None if self.hidden is None else self.hidden[start : start + step]
            yield Segment(self.block, at, self.k, hidden, is_part=True)


def _windows(segment: Segment, mask: AttentionMask, reach: int) -> Iterator[Segment]:
    """Consecutive parts of a segment's queries, each with the keys that lie within reach of one of them."""
    keys = torch.arange(segment.k.start, segment.k.stop)
    places = keys if mask.places is None else mask.places[segment.block, segment.q]
    is_padding = None if mask.is_padding is None else mask.is_padding[segment.block]
    step = max(WINDOW_QUERIES, 2 * reach)
    for start in range(0, len(places), step):
        part = places[start : start + step]
        first, last = (int(bound) for bound in part.aminmax())
        at_k = slice(max(first - reach, segment.k.start), min(last + reach + 1, segment.k.stop))
        hidden = (part[:, None] - keys[at_k.start - segment.k.start : at_k.stop - segment.k.start]).abs() > reach
        hidden = hidden if is_padding is None else hidden | is_padding[at_k]
        begin = segment.q.start + start
        yield Segment(segment.block, slice(begin, begin + len(part)), at_k, hidden, is_part=True)


def _heads(segments: list[Segment], num_heads: int) -> Iterator[tuple[Segment, int, slice]]:
    """Every head of every segment, and the slice of its weights in the flat array of all weights."""
    end = 0
    for segment in segments:
        size = segment.shape[0] * segment.shape[1]
        for head in range(num_heads):
            yield segment, head, slice(end, end + size)
            end += size


def _softmax(q: Tensor, k: Tensor, segment: Segment, is_padding: Tensor | None, out: Tensor | None = None) -> Tensor:
    """Weights (q, t) of queries (q, K) and keys (t, K)."""
    logits = plain_linear(q, k)
    if segment.hidden is not None:  # not minus infinity: a window may be all padding
        logits.masked_fill_(segment.hidden, torch.finfo(q.dtype).min)
    elif is_padding is not None:
        logits.masked_fill_(is_padding[segment.block, segment.k], float("-inf"))
    return torch.softmax(logits, dim=-1) if out is None else torch.softmax(logits, dim=-1, out=out.view(logits.shape))


def _words(segment: Segment, at: slice, words: Tensor | None, seed: int) -> Tensor:
    """Random bits of the weights of a head (q, t): some of `words`, or drawn from a seed."""
    if words is not None:
        return words[at].view(segment.shape)
    return draw_words(torch.Size(segment.shape), torch.Generator().manual_seed(seed + at.start))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        is_padding: Tensor | None,
        segments: list[Segment],
        level: int,
        keeps: bool,
    ) -> Tensor:
        batch, heads, num_queries, dim = q.shape
        # (B, Q, H, K) in memory: the caller joins the heads without a copy
        output = q.new_zeros(batch, num_queries, heads, dim).transpose(1, 2)
        dtype = torch.bfloat16 if rounds() else torch.float32
        q, k, v = (factor.to(dtype).contiguous() for factor in (q * dim**-0.5, k, v))
        weights = words = None
        if keeps:
            weights = q.new_empty(heads * sum(segment.shape[0] * segment.shape[1] for segment in segments))
            words = draw_words(weights.shape) if level else None
        seed = int(torch.randint(2**62, ())) if level and not keeps else 0
        for segment, head, at in _heads(segments, heads):
            at_q, at_k = (segment.block, head, segment.q), (segment.block, head, segment.k)
            used = _softmax(q[at_q], k[at_k], segment, is_padding, None if weights is None else weights[at])
            if level:
                used = keep_only(used, kept(_words(segment, at, words, seed), level, dtype))
            output[at_q] = plain_linear(used, v[at_k].t())
        ctx.save_for_backward(q, k, v, weights, words, is_padding)
        ctx.level, ctx.segments, ctx.seed = level, segments, seed
        return output.mul_(scale_of_kept(level)) if level else output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights, words, is_padding = ctx.saved_tensors
        output_grad = gradients[0].contiguous()
        output_grad = (output_grad * scale_of_kept(ctx.level) if ctx.level else output_grad).to(q.dtype)
        q_grad, k_grad, v_grad = (torch.zeros_like(factor, dtype=gradients[0].dtype) for factor in (q, k, v))
        for segment, head, at in _heads(ctx.segments, q.size(1)):
            at_q, at_k = (segment.block, head, segment.q), (segment.block, head, segment.k)
            if weights is None:
                of_softmax = _softmax(q[at_q], k[at_k], segment, is_padding)
            else:
                of_softmax = weights[at].view(segment.shape)
            used, used_grad = of_softmax, plain_linear(output_grad[at_q], v[at_k])  # (q, K), (t, K) -> (q, t)
            if ctx.level:
                keep = kept(_words(segment, at, words, ctx.seed), ctx.level, q.dtype)
                used, used_grad = keep_only(used, keep), keep_only(used_grad, keep)
            # The transposed result, because oneDNN copies a left factor that is transposed: here the smaller one
            _put(v_grad, at_k, plain_linear(output_grad[at_q].t(), used.t()).t(), adds=segment.is_part)
            logits_grad = torch._softmax_backward_data(used_grad, of_softmax, -1, q.dtype)
            q_grad[at_q] = plain_linear(logits_grad, k[at_k].t())
            _put(k_grad, at_k, plain_linear(q[at_q].t(), logits_grad.t()).t(), adds=segment.is_part)
        return q_grad.mul_(q.size(-1) ** -0.5), k_grad, v_grad, None, None, None, None


def _put(target: Tensor, at: tuple[int, int, slice], part: Tensor, *, adds: bool) -> None:
    """Set a part of a gradient, or add to it, where several segments have some of the same keys."""
    if adds:
        target[at] += part
    else:
        target[at] = part


logger = logging.getLogger(__name__)

HALF = (torch.float16, torch.bfloat16)
DIM_MULTIPLE, MAX_DIM = 8, 256  # the kernel takes no other head dimensions


class TorchFlashAttention(AttentionBackend):
    """torch's own FlashAttention-2 (Dao 2023) for sequences of different lengths, in half precision, with dropout."""

    name = "torch_flash"
    serves_padded = False

    def assert_supported(self, device: torch.device, *, dropout_prob: float) -> None:
        """Needs a GPU of compute capability 8.0 or more and a torch that was built with the kernel."""
        missing = []
        if device.type != "cuda":
            missing.append(f"a GPU, found device {device.type!r}")
        elif not has_kernel():
            missing.append(f"a torch with flash attention, found {torch.__version__}")
        elif capability(device) < (8, 0):
            version = ".".join(map(str, capability(device)))
            missing.append(f"a GPU of compute capability 8.0 (A100) or more, found {version}")
        if missing:
            raise RuntimeError(
                f"attention backend 'torch_flash' needs {'; '.join(missing)}. Use --attention-backend auto."
            )

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, dropout_prob: float) -> Tensor:
        """Attention by torch's flash kernel; see `AttentionBackend`.

        Raises:
            RuntimeError: for fp32 and for heads of more than MAX_DIM dimensions, which the kernel does not have.
        """
        if q.dtype not in HALF:
            raise RuntimeError(
                f"attention backend 'torch_flash' needs --bf16, --fp16 or --amp, found {q.dtype}. Use "
                "--attention-backend auto."
            )
        sequences = mask.sequences
        assert sequences is not None
        dim = q.size(-1)
        if dim > MAX_DIM:
            raise RuntimeError(
                f"attention backend 'torch_flash' has heads of at most {MAX_DIM} dimensions, found {dim}: raise "
                "--encoder-attention-heads, or use --attention-backend auto."
            )
        if mask.reach is not None and mask.places is not None:  # the kernel's windows apply to whole sequences
            of_rows, all_q = mask.for_all(q, k.size(2))
            return pick(self.attend(all_q, k, v, of_rows, dropout_prob), mask.places)
        rows = [F.pad(as_rows(x), (0, -dim % DIM_MULTIPLE)) if dim % DIM_MULTIPLE else as_rows(x) for x in (q, k, v)]
        output: Tensor = torch.ops.aten._flash_attention_forward(
            *rows,
            sequences.cu_seqlens_q,
            sequences.cu_seqlens_k,
            sequences.max_seqlen_q,
            sequences.max_seqlen_k,
            dropout_prob,
            False,  # is_causal
            False,  # return_debug_mask
            scale=dim**-0.5,
            window_size_left=mask.reach,
            window_size_right=mask.reach,
        )[0]
        return output[..., :dim].transpose(0, 1)[None]  # (N, H, K) -> (1, H, N, K)


def as_rows(x: Tensor) -> Tensor:
    """(1, H, N, K) -> (N, H, K), the kernel's layout.

    `squeeze` and not `x[0]`, whose gradient would be written into a tensor of zeros first.
    """
    return x.squeeze(0).transpose(0, 1)


def is_available(device: torch.device) -> bool:
    """True if `torch_flash` can run on the device."""
    return device.type == "cuda" and has_kernel() and capability(device) >= (8, 0)


@cache
def is_exact(device: torch.device, dtype: torch.dtype, *, has_windows: bool = False) -> bool:
    """True if `torch_flash` computes correctly there: a small row, with its gradients, in fp32 and by the kernel.

    For automatic choices: a new build of torch or a new device must not be trusted blindly.
    Takes milliseconds, and one device-to-host sync.
    """
    if not is_available(device) or dtype not in HALF:
        return False
    try:
        return agrees_with_definition(TorchFlashAttention(), device, dtype, reach=8 if has_windows else None)
    except (RuntimeError, TypeError) as error:  # no kernel for this device, or other arguments
        logger.warning(f"torch's flash attention does not run here, batches are padded: {error}")
        return False


def agrees_with_definition(
    backend: AttentionBackend, device: torch.device, dtype: torch.dtype, *, reach: int | None = None
) -> bool:
    """True if outputs and gradients of a backend equal softmax in fp32 within the rounding of `dtype`."""
    lengths, heads, dim = (70, 1, 0, 57), 2, 64
    total = sum(lengths)
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(4, 1, heads, total, dim, generator=generator).to(device, dtype)
    bounds = torch.tensor([0, *lengths], device=device).cumsum(0).int()
    sequences = Sequences(bounds, bounds, max(lengths), max(lengths))
    results = []
    for kind in (torch.float32, dtype):
        q, k, v = inputs = [x.to(kind).detach().requires_grad_() for x in numbers[:3]]
        if kind == dtype:
            output = backend(q, k, v, dropout_prob=0.0, sequences=sequences, reach=reach)
        else:
            allowed = AttentionMask(sequences=sequences, reach=reach).allowed(q, k)
            assert allowed is not None
            logits = (q * dim**-0.5 @ k.transpose(-2, -1)).masked_fill(~allowed, float("-inf"))
            output = torch.softmax(logits, dim=-1) @ v
        gradients = torch.autograd.grad(output, inputs, numbers[3].to(kind))
        results.append([x.float() for x in (output, *gradients)])
    # of flash attention in bf16: 0.5 % of the largest number; a wrong argument: more than 50 %
    return all(
        bool((computed - expected).abs().amax() <= 0.03 * expected.abs().amax())
        for expected, computed in zip(*results, strict=True)
    )


def has_kernel() -> bool:
    """True if torch has the operator, and was built with the kernel."""
    return hasattr(torch.ops.aten, "_flash_attention_forward") and torch.backends.cuda.is_flash_attention_available()


def capability(device: torch.device) -> tuple[int, int]:
    """The compute capability of a GPU, such as (9, 0) for Hopper.

    torch keeps it; a cache of ours would be a warning of torch.compile in every log.
    """
    return torch.cuda.get_device_capability(device)
