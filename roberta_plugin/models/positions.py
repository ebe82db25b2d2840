"""Positions of tokens as attention sees them: rotary positions and local windows.

Rotary positions (Su et al. 2021, "RoFormer", arXiv 2104.09864, section 3.2.2). Dimensions i and i + K / 2 of a head's
queries and keys are turned by the angle t * base^(-2 i / K) at position t, so that their products depend on differences
of positions alone. Hugging Face's models pair dimensions in the same way. There are no position embeddings then, and
the length of texts is limited by the training only.

Local windows, as in ModernBERT (Warner et al. 2024, arXiv 2412.13663, section 2.1): layers 0, N, 2 N, ... attend to the
whole sequence, the others to window / 2 positions on either side of each. Which layer is local goes by its place in the
encoder, so that layers with the same parameters may differ in it.

Shapes: B blocks, H heads, T positions, Q positions that attend, K head dimension, F = K / 2 frequencies of a head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Rotation(NamedTuple):
    """The angles of some positions."""

    cosines: Tensor
    """(B, T, 1, F); B = 1 where all blocks are alike."""
    sines: Tensor

    @classmethod
    def at(cls, positions: Tensor, *, head_dim: int, base: float, dtype: torch.dtype) -> Rotation:
        """The angles at positions (B, T): in fp64 for a model in fp64, else in fp32."""
        dtype = dtype if dtype == torch.float64 else torch.float32
        exponents = torch.arange(0, head_dim, 2, dtype=dtype, device=positions.device) / head_dim
        angles = positions[:, :, None, None].to(dtype) * (1.0 / base**exponents)  # (B, T) -> (B, T, 1, F)
        return cls(angles.cos(), angles.sin())

    def rotate(self, x: Tensor) -> Tensor:
        """Queries or keys (B, H, T, K), turned; computed in the type of the angles.

        The result lies in memory as (B, T, H, K), so that what attends to it lies as the next product reads it.
        On a GPU, three kernels turn them, and three their gradient. torch.compile makes one of the steps below.
        """
        if x.is_cuda and not torch.compiler.is_compiling():
            turned: Tensor = _Turn.apply(x.transpose(1, 2), self.cosines, self.sines)  # type: ignore[no-untyped-call]
            return turned.transpose(1, 2)
        first, second = x.transpose(1, 2).chunk(2, dim=-1)
        halves = (first * self.cosines - second * self.sines, second * self.cosines + first * self.sines)
        return torch.cat(halves, dim=-1).to(x.dtype).transpose(1, 2)


class _Turn(torch.autograd.Function):
    """Heads (B, T, H, K), turned by angles; the gradient is turned back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        ctx.save_for_backward(cosines, sines)
        return turn(x, cosines, sines)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cosines, sines = ctx.saved_tensors
        return turn(gradients[0], cosines, sines, sign=-1), None, None


def turn(x: Tensor, cosines: Tensor, sines: Tensor, *, sign: int = 1) -> Tensor:
    """Heads (B, T, H, K) turned by angles (B, T, 1, F), or back, in 14 bytes for each number in half precision.

    The sums are computed in the type of the angles, and rounded once, where they are written.
    """
    halves = x.unflatten(-1, (2, -1))  # -> (B, T, H, 2, F)
    products = halves * cosines[..., None, :]
    result = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    both = result.unflatten(-1, (2, -1))
    for number, value in ((0, -sign), (1, sign)):
        into, other = both.select(3, number), halves.select(3, 1 - number)
        torch.addcmul(products.select(3, number), other, sines, value=value, out=into)
    return result


class Places(NamedTuple):
    """Places of a layer's inputs for its attention, beside padding and sequences."""

    reach: int | None = None
    """Positions on either side that each attends to; None: all."""
    of_queries: Tensor | None = None
    """Places in their rows of the positions that attend (B, Q); None: all of them do."""
    q: Rotation | None = None
    k: Rotation | None = None

    def rotated(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries (B, H, Q, K) and keys (B, H, T, K), turned by their own positions."""
        return (q if self.q is None else self.q.rotate(q)), (k if self.k is None else self.k.rotate(k))


@dataclass(frozen=True)
class PositionScheme:
    """The options of rotary positions and windows."""

    head_dim: int = 0
    base: float | None = None
    """Base of the angles in global layers; None: learned positions."""
    base_local: float | None = None
    """Base of the angles in local layers."""
    window: int | None = None
    """Positions beside its own that a position attends to in a local layer, half of them on either side."""
    global_every: int = 1

    @classmethod
    def from_config(cls, cfg: Any) -> PositionScheme:
        """The scheme that a model's options describe."""
        is_rotary, dim = str(cfg.position_encoding) == "rotary", cfg.encoder_embed_dim // cfg.encoder_attention_heads
        base_local = cfg.rotary_base if cfg.rotary_base_local is None else cfg.rotary_base_local
        base, base_local = (cfg.rotary_base, base_local) if is_rotary else (None, None)
        return cls(dim, base, base_local, cfg.attention_window, cfg.global_attention_every)

    @property
    def is_rotary(self) -> bool:
        """True if positions are rotary."""
        return self.base is not None

    def is_local(self, number: int) -> bool:
        """True if the layer of this number attends to its window alone."""
        return self.window is not None and number % self.global_every > 0

    def num_local(self, num_layers: int) -> int:
        """How many of so many layers are local."""
        return sum(map(self.is_local, range(num_layers)))

    def places(
        self, x: Tensor, packing: Mapping[str, Any] | None, predicted: Mapping[str, Any] | None = None
    ) -> tuple[Places | None, Places | None]:
        """For global and for local layers of inputs x (B, T, D); None: nothing to know.

        With `predicted`, only its positions attend; see `SentenceEncoder.forward`.
        """
        if not self.is_rotary and self.window is None:
            return None, None
        length = x.size(1) if packing is None else packing["max_seqlen"]
        wanted = None if predicted is None else predicted["positions"]
        reach = None if self.window is None else self.window // 2
        if reach is not None and not torch.compiler.is_exporting() and reach >= length - 1:
            reach = None  # over the whole block; an exported graph is one for all lengths
        rotations: list[tuple[Rotation | None, Rotation | None]] = [(None, None)] * 2
        if self.base is not None and self.base_local is not None:
            positions = torch.arange(x.size(1), device=x.device)[None] if packing is None else packing["positions"]
            of_q = positions if wanted is None else positions.expand(x.size(0), -1).gather(1, wanted)
            bases = (self.base, self.base_local)
            rotations_by_base = {base: self._rotations(of_q, positions, base, x.dtype) for base in set(bases)}
            rotations = [rotations_by_base[base] for base in bases]
        at = wanted if reach is not None else None
        return Places(None, None, *rotations[0]), Places(reach, at, *rotations[1])

    def _rotations(
        self, of_q: Tensor, of_k: Tensor, base: float, dtype: torch.dtype
    ) -> tuple[Rotation | None, Rotation | None]:
        k = Rotation.at(of_k, head_dim=self.head_dim, base=base, dtype=dtype)
        return (k if of_q is of_k else Rotation.at(of_q, head_dim=self.head_dim, base=base, dtype=dtype)), k


LEARNED = PositionScheme()
"""As in the paper: learned positions, and attention to all of them."""
