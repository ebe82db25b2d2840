"""Triton's kernels of `gelu`: one of GELU(x + bias), and one of its derivatives. They compute in fp32.

    forward    reads x                -> writes GELU(x + bias)
    backward   reads x and dL/dGELU   -> writes dL/dx, and sums of its rows, for the bias

Each program takes COLUMNS columns of ROWS rows, STEP rows at a time. The sums of the programs are added up afterwards,
always in the same order, so that equal inputs have equal gradients.

Shapes: M rows, N columns, P = ceil(M / ROWS) programs for the same columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # then nothing calls these kernels: see `gelu.is_served`
    triton = None

# A kernel is compiled once for all numbers of rows, so that what has run for a few rows compiles nothing later.
_jit: Callable[[Any], Any] = triton.jit(do_not_specialize=["num_rows"]) if triton else lambda function: function
ROWS, STEP, COLUMNS = 128, 8, 128
SIZES = {"per_program": ROWS, "step": STEP, "width": COLUMNS}


def forward(x: Tensor, bias: Tensor) -> Tensor:
    """`x` (M, N), `bias` (N,) -> GELU(x + bias) (M, N); all without gaps."""
    output = torch.empty_like(x)
    forward_kernel[_grid(x)](x, bias, output, *x.shape, **SIZES)
    return output


def backward(gradient: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """dL/dGELU (M, N), `x` (M, N), `bias` (N,) -> dL/dx (M, N), and its sums over ROWS rows each (P, N), in fp32."""
    grid = _grid(x)
    of_x = torch.empty_like(x)
    sums = torch.empty((grid[0], x.size(1)), dtype=torch.float32, device=x.device)
    backward_kernel[grid](gradient, x, bias, of_x, sums, *x.shape, **SIZES)
    return of_x, sums


def _grid(x: Tensor) -> tuple[int, int]:
    return num_programs(x.size(0)), -(-x.size(1) // COLUMNS)


def num_programs(num_rows: int) -> int:
    """P of M rows."""
    return -(-num_rows // ROWS)


@_jit
def forward_kernel(
    x: tl.tensor,
    bias: tl.tensor,
    output: tl.tensor,
    num_rows: tl.tensor,
    num_columns: tl.tensor,
    per_program: tl.constexpr,
    step: tl.constexpr,
    width: tl.constexpr,
) -> None:
    """Grid (P, ceil(N / COLUMNS))."""
    columns = tl.program_id(1) * width + tl.arange(0, width)
    is_column = columns < num_columns
    shift = tl.load(bias + columns, mask=is_column, other=0.0).to(tl.float32)
    for start in range(0, per_program, step):
        rows = tl.program_id(0) * per_program + start + tl.arange(0, step)
        mask = (rows < num_rows)[:, None] & is_column[None, :]
        at = rows.to(tl.int64)[:, None] * num_columns + columns[None, :]
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) + shift[None, :]
        result = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
        tl.store(output + at, result.to(output.dtype.element_ty), mask=mask)


@_jit
def backward_kernel(
    gradient: tl.tensor,
    x: tl.tensor,
    bias: tl.tensor,
    of_x: tl.tensor,
    sums: tl.tensor,
    num_rows: tl.tensor,
    num_columns: tl.tensor,
    per_program: tl.constexpr,
    step: tl.constexpr,
    width: tl.constexpr,
) -> None:
    """Grid (P, ceil(N / COLUMNS))."""
    columns = tl.program_id(1) * width + tl.arange(0, width)
    is_column = columns < num_columns
    shift = tl.load(bias + columns, mask=is_column, other=0.0).to(tl.float32)
    total = tl.zeros((step, width), dtype=tl.float32)
    for start in range(0, per_program, step):
        rows = tl.program_id(0) * per_program + start + tl.arange(0, step)
        mask = (rows < num_rows)[:, None] & is_column[None, :]
        at = rows.to(tl.int64)[:, None] * num_columns + columns[None, :]
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) + shift[None, :]
        above = tl.load(gradient + at, mask=mask, other=0.0).to(tl.float32)
        slope = 0.5 * (1.0 + tl.erf(value * 0.7071067811865476))
        slope += value * tl.exp(-0.5 * value * value) * 0.3989422804014327
        result = above * slope
        tl.store(of_x + at, result.to(of_x.dtype.element_ty), mask=mask)
        total += result
    at = tl.program_id(0).to(tl.int64) * num_columns + columns
    tl.store(sums + at, tl.sum(total, axis=0), mask=is_column)
