"""What lets a small model compare two texts?

    OMP_NUM_THREADS=1 python -m tests.benchmarks.bench_comparing DATA-BIN --output FILE.jsonl [--tasks equal,word]
        [--cells random,recipe,...] [--checkpoint FILE] [--seconds 60] [--seeds 1]

A classification head on `<s> a </s></s> b </s>` learns from pairs that are made anew for every update from the training
text, for so many seconds of processor time; accuracy is that on 1,000 pairs of the validation text. a and b are
of the same length. The questions:

    equal   Is b the same text as a, or another one?
    half    Is every second word of b one of a, in another order, or none?
    word    Does one word of b stand in a, too, or none? That word has replaced one of b in both cases.

Half of the answers are yes, and neither text alone knows them. What counts as a word is a token that is none of
the 200 most frequent; in the answers no, those of b that stand in a are replaced by others.

Each cell is a start and settings; `CELLS` has those that were tried. What a cell needs to reach 75 % is its updates and seconds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.hub.interface import from_pretrained
from roberta_plugin.models.config import SIZES, sizes
from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.tasks.block_task import load_vocabulary

Ids = NDArray[np.int64]

FREQUENT = 200  # tokens that are no words here
BATCH, HELD_OUT, EVERY = 32, 1000, 100
WARM_UP = 0.06
RECIPE = {"encoder_normalize_before": True, "init_std": "width"}
TODAY = {**RECIPE, "init_attention": "neighbors", "zero_init_residual": True}


@dataclass(frozen=True)
class Cell:
    """A start and settings."""

    options: dict[str, Any] = field(default_factory=lambda: dict(TODAY))
    size: str | tuple[int, int, int, int] = "mini"
    lr: float = 5e-4
    batch: int = BATCH
    segments: bool = False
    copy: str = ""
    """A first half of the time with masked tokens of b, which stand in a: "same" or "shuffled"."""
    dropout: float = 0.0


class Texts:
    """Pairs from the text of one split."""

    def __init__(self, prefix: Path, *, first_word: int, num_symbols: int, seed: int) -> None:
        tokens = MmapTokens(prefix)
        ids = np.array(tokens.tokens_on_disk.read(0, tokens.num_tokens) if False else np.memmap(str(prefix) + ".bin", "<u2"))
        self.ids = ids[ids != 2].astype(np.int64)
        self.first_word, self.num_symbols = first_word, num_symbols
        self.rng = np.random.default_rng(seed)
        self.words = self.ids[self.ids >= first_word]

    def span(self, length: int) -> Ids:
        """So many tokens from anywhere."""
        start = self.rng.integers(len(self.ids) - length)
        return self.ids[start : start + length].copy()

    def foreign(self, number: int, taken: Ids) -> Ids:
        """Words of the text as often as there, none of them of `taken`."""
        found = self.rng.choice(self.words, 4 * number + 8)
        return found[~np.isin(found, taken)][:number]

    def pair(self, question: str, length: int) -> tuple[Ids, Ids, bool]:
        """a, b and the answer."""
        a, b, answer = self.span(length), self.span(length), bool(self.rng.integers(2))
        if question == "equal":
            return a, (a.copy() if answer else b), answer
        in_a = np.flatnonzero(a >= self.first_word)
        shared = np.flatnonzero((b >= self.first_word) & np.isin(b, a))
        b[shared] = self.foreign(len(shared), a)
        in_b = np.flatnonzero(b >= self.first_word)
        number = min(len(in_a), len(in_b), 1 if question == "word" else max(1, len(in_b) // 2))
        if not number:
            return self.pair(question, length)
        at = self.rng.choice(in_b, number, replace=False)
        b[at] = a[self.rng.choice(in_a, number, replace=False)] if answer else self.foreign(number, np.append(a, b))
        return a, b, answer

    def batch(self, question: str, number: int, lengths: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids (B, T), segments (B, T) and answers (B,)."""
        pairs = [self.pair(question, int(self.rng.integers(lengths[0], lengths[1] + 1))) for _ in range(number)]
        width = max(2 * len(a) for a, _, _ in pairs) + 4
        rows, segments = np.ones((number, width), np.int64), np.zeros((number, width), np.int64)
        for row, segment, (a, b, _) in zip(rows, segments, pairs, strict=True):
            row[: 2 * len(a) + 4] = [0, *a, 2, 2, *b, 2]
            segment[len(a) + 2 : 2 * len(a) + 4] = 1
        return torch.from_numpy(rows), torch.from_numpy(segments), torch.tensor([answer for *_, answer in pairs]).long()


def build(cell: Cell, data: Path, checkpoint: Path | None) -> FastRobertaModel:
    """The model of a cell, with a head."""
    if checkpoint is not None:
        model = from_pretrained(checkpoint.parent, checkpoint.name, data_name_or_path=str(data)).model
    else:
        dictionary, _ = load_vocabulary(data)
        size = sizes(*(SIZES[cell.size] if isinstance(cell.size, str) else cell.size))
        options = {**size, "dropout": cell.dropout, "attention_dropout": cell.dropout, **cell.options, "matmul_precision": "medium"}
        task = SimpleNamespace(
            source_dictionary=dictionary, max_positions=lambda: 64, num_segments=2 if cell.segments else 0
        )
        model = FastRobertaModel.build_model(SimpleNamespace(**options), task)
    model.register_head("answer", "classification", num_classes=2)
    return model


@torch.no_grad()
def accuracy(model: FastRobertaModel, batches: list[Any], segments: bool) -> float:
    model.eval()
    right = total = 0
    for ids, seg, answers in batches:
        logits = model(ids, head="answer", segments=seg if segments else None)[0]
        right, total = right + int((logits.argmax(1) == answers).sum()), total + len(answers)
    model.train()
    return 100 * right / total


def copy_loss(model: FastRobertaModel, ids: torch.Tensor, seg: torch.Tensor, mask: int, segments: bool) -> torch.Tensor:
    """Masked-LM loss of 40 % of the tokens of b."""
    chosen = (torch.rand(ids.shape) < 0.4) & (seg == 1) & (ids > 2)
    width = max(1, int(chosen.sum(1).max()))
    order = chosen.int().argsort(dim=1, descending=True, stable=True)[:, :width]
    labels = torch.where(chosen.gather(1, order), ids.gather(1, order), 1)
    masked = torch.where(chosen, mask, ids)
    loss, _ = model(masked, predicted={"positions": order, "labels": labels}, segments=seg if segments else None)
    return loss / chosen.sum().clamp(min=1)


def run(name: str, cell: Cell, question: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Learn, and say how accuracy rose."""
    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("medium")
    model = build(cell, arguments.data, arguments.checkpoint)
    num_symbols = model.encoder.lm_head.bias.numel()
    lengths = tuple(map(int, arguments.lengths.split("-")))
    texts = Texts(arguments.data / "train", first_word=4 + FREQUENT, num_symbols=num_symbols, seed=seed)
    held = Texts(arguments.data / "valid", first_word=4 + FREQUENT, num_symbols=num_symbols, seed=0)
    held_out = [held.batch(question, 100, lengths) for _ in range(HELD_OUT // 100)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=cell.lr, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    model.train()
    start, spent, updates, curve, losses = time.process_time(), 0.0, 0, [], []
    reached: tuple[int, float] | None = None
    copying = bool(cell.copy)
    while (share := (time.process_time() - start - spent) / arguments.seconds) < 1:
        if copying and share > 0.5:
            copying = False
        rate = min(1.0, share / WARM_UP) * (1 - max(0.0, share - 0.5) if True else 1)
        for group in optimizer.param_groups:
            group["lr"] = cell.lr * rate
        if copying:
            ids, seg, _ = texts.batch("copy-" + cell.copy, cell.batch, lengths)
            loss = copy_loss(model, ids, seg, num_symbols - 1, cell.segments)
        else:
            ids, seg, answers = texts.batch(question, cell.batch, lengths)
            loss = F.cross_entropy(model(ids, head="answer", segments=seg if cell.segments else None)[0], answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        updates += 1
        if updates % EVERY == 0:
            before = time.process_time()
            found = accuracy(model, held_out, cell.segments)
            spent += time.process_time() - before
            curve.append((updates, round(found, 1), round(float(np.mean(losses[-EVERY:])), 3)))
            if reached is None and found >= 75:
                reached = (updates, before - start - spent)
    final = accuracy(model, held_out, cell.segments)
    return {
        "cell": name, "checkpoint": arguments.checkpoint and arguments.checkpoint.parent.name, "question": question, "lengths": arguments.lengths,
        "seed": seed, "updates": updates, "seconds": round(time.process_time() - start - spent, 1),
        "reached": reached, "best": max([final, *(item[1] for item in curve)]), "final": final, "curve": curve[:: max(1, len(curve) // 15)],
    }


def cell_of(name: str) -> Cell:
    import dataclasses
    cell = Cell()
    for part in name.split("+"):
        if part == "plain":
            cell = dataclasses.replace(cell, options={})
        elif part == "random":
            cell = dataclasses.replace(cell, options=dict(RECIPE))
        elif part == "seg":
            cell = dataclasses.replace(cell, segments=True)
        elif part == "recipe":
            pass
        elif part in SIZES:
            cell = dataclasses.replace(cell, size=part)
        elif part == "rotary":
            cell = dataclasses.replace(cell, options={**RECIPE, **({"zero_init_residual": True} if "zero_init_residual" in cell.options else {}), "position_encoding": "rotary"})
        elif part == "qk":
            cell = dataclasses.replace(cell, options={**cell.options, "qk_norm": True})
        elif "=" in part:
            key, value = part.split("=")
            if key == "copy":
                cell = dataclasses.replace(cell, copy=value)
            elif key == "size":
                cell = dataclasses.replace(cell, size=tuple(map(int, value.split("x"))))
            elif key in ("lr", "batch", "dropout"):
                cell = dataclasses.replace(cell, **{key: type(getattr(cell, key))(float(value))})
            else:
                cell = dataclasses.replace(cell, options={**cell.options, key: value})
        else:
            raise ValueError(part)
    return cell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--tasks", default="equal,word")
    parser.add_argument("--cells", default="recipe")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--lengths", default="8-14")
    arguments = parser.parse_args()
    for seed in map(int, arguments.seeds.split(",")):
        for name in arguments.cells.split(","):
            for question in arguments.tasks.split(","):
                found = run(name, cell_of(name), question, seed, arguments)
                with open(arguments.output, "a") as out:
                    out.write(json.dumps(found) + "\n")
                print({key: value for key, value in found.items() if key != "curve"}, [item[1] for item in found["curve"]], flush=True)


if __name__ == "__main__":
    main()
