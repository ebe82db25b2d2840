"""What lets a small model compare two texts?

    OMP_NUM_THREADS=1 python -m tests.benchmarks.bench_comparing DATA-BIN --output-dir DIR [--questions equal,words,word]
        [--cells today,segments] [--checkpoint FILE] [--seconds 40] [--seeds 1,2] [--write]

A classification head on `<s> a </s></s> b </s>` learns for so many seconds of processor time from pairs of 8 to 14 tokens each,
made anew from the training text for every update; accuracy is that on 1,000 pairs of the validation text. The questions:

    equal   Is b the same text as a? Otherwise it is another one.
    words   Are words of b words of a? As many as fit are put in places of b's own words; or those of a third text are.
    word    The same with one word.

Words are tokens but for the 200 most frequent ones. Half of the answers are yes; both texts are of the same length, and neither
alone knows the answer: no other word of b is one of a.

Each cell is a model and settings (`PARTS`), whose learning rate rises for 6 % of the time and falls to half from the middle of it.
`first=QUESTION` learns another question for the first half. With --checkpoint, cells begin with its weights and architecture.
What is in DIR/results.jsonl is not done again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.hub.interface import from_pretrained
from roberta_plugin.models.config import SIZES, sizes
from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.tasks.block_task import load_vocabulary
from tests.benchmarks.report import Report, machine

Ids = NDArray[np.int64]
Options = dict[str, Any]

BOS, PAD, EOS, SPECIAL, FREQUENT = 0, 1, 2, 4, 200
LENGTHS = (8, 14)
HELD_OUT, EVERY, GOAL = 1000, 100, 75.0
WARM_UP = 0.06
TOKENS_READ = 4_000_000

PARTS: dict[str, Options] = {
    "random": {},
    "today": {"init_attention": "neighbors", "zero_init_residual": True},
    "plain": {"encoder_normalize_before": False, "init_std": "0.02"},
    "rotary": {"position_encoding": "rotary"},
    "qk-norm": {"qk_norm": True},
    "window": {"attention_window": 8, "global_attention_every": 2},
    "segments": {"segments": True},
    "heads": {"encoder_attention_heads": 8},
    "deep": {"encoder_layers": 4},
    "mini": sizes(*SIZES["mini"]),
    "matching": {"matching": True},
}
"""What the parts of a cell, joined by +, change of 2 layers of width 128, norms before sublayers, init-std width, lr 1e-3, batch 32.

`matching`: the keys of the second layer begin with the matrix of its queries, so that a token attends to its equals.
Further parts are `lr=`, `batch=` and `first=`.
"""


class Pairs:
    """Pairs from the text of one split."""

    def __init__(self, prefix: Path, *, seed: int) -> None:
        tokens = MmapTokens(prefix)
        ids = np.concatenate([tokens[item] for item in range(min(len(tokens), TOKENS_READ // 20))]).astype(np.int64)
        self.ids = ids[ids != EOS]
        self.words = self.ids[self.ids >= SPECIAL + FREQUENT]
        self.rng = np.random.default_rng(seed)

    def text(self, length: int) -> Ids:
        """So many tokens from anywhere."""
        start = self.rng.integers(len(self.ids) - length)
        return self.ids[start : start + length].copy()

    def other_words(self, number: int, taken: Ids) -> Ids:
        """So many words of the text, as frequent as there, that are not in `taken`."""
        found = self.rng.choice(self.words, 4 * number + 8)
        return found[~np.isin(found, taken)][:number]

    def pair(self, question: str) -> tuple[Ids, Ids, bool]:
        """a, b and the answer."""
        length = int(self.rng.integers(LENGTHS[0], LENGTHS[1] + 1))
        a, b, answer = self.text(length), self.text(length), bool(self.rng.integers(2))
        if question == "equal":
            return a, (a if answer else b), answer
        shared = np.flatnonzero((b >= SPECIAL + FREQUENT) & np.isin(b, a))
        b[shared] = self.other_words(len(shared), a)
        other = self.text(length)
        of_a, of_other = (np.unique(text[text >= SPECIAL + FREQUENT]) for text in (a, other))
        of_other = of_other[~np.isin(of_other, a)]
        places = self.rng.permutation(np.flatnonzero(b >= SPECIAL + FREQUENT))
        number = min(len(of_a), len(of_other), len(places), 1 if question == "word" else len(b))
        if not number:
            return self.pair(question)
        b[places[:number]] = self.rng.permutation(of_a if answer else of_other)[:number]
        return a, b, answer

    def batch(self, question: str, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Ids (B, T), segments (B, T) and answers (B,)."""
        pairs = [self.pair(question) for _ in range(number)]
        rows = np.full((number, 2 * max(len(a) for a, _, _ in pairs) + 4), PAD)
        segments = np.zeros_like(rows)
        for row, segment, (a, b, _) in zip(rows, segments, pairs, strict=True):
            end = 2 * len(a) + 4
            row[:end] = [BOS, *a, EOS, EOS, *b, EOS]
            segment[len(a) + 2 : end] = 1
        return torch.from_numpy(rows), torch.from_numpy(segments), torch.tensor([int(answer) for *_, answer in pairs])


def settings_of(name: str) -> Options:
    """The options of a cell."""
    found: Options = {"lr": 1e-3, "batch": 32, "first": None, "segments": False, "matching": False}
    found |= sizes(*SIZES["tiny"]) | {"encoder_normalize_before": True, "init_std": "width"}
    found |= {"dropout": 0.0, "attention_dropout": 0.0, "matmul_precision": "medium"}
    for part in name.split("+"):
        option, _, value = part.partition("=")
        if value:
            found[option] = {"lr": float, "batch": int, "first": str}[option](value)
        else:
            found |= PARTS[part]
    return found


def build(cell: Options, data: Path, checkpoint: Path | None) -> FastRobertaModel:
    """The model of a cell, with a head called answer."""
    if checkpoint is not None:
        model = from_pretrained(checkpoint.parent, checkpoint.name, data_name_or_path=str(data)).model
    else:
        segments = 2 if cell["segments"] else 0
        task = SimpleNamespace(
            source_dictionary=load_vocabulary(data)[0], max_positions=lambda: 64, num_segments=segments
        )
        model = FastRobertaModel.build_model(SimpleNamespace(**cell), task)
    model.register_head("answer", "classification", num_classes=2)
    if cell["matching"]:
        attention = model.encoder.sentence_encoder.layers[1].self_attn
        attention.k_proj.load_state_dict(attention.q_proj.state_dict())
    return model


def run(name: str, question: str, seed: int, arguments: argparse.Namespace) -> Options:
    """Learn one question, and say how accuracy rose."""
    cell = settings_of(name)
    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("medium")
    model = build(cell, arguments.data, arguments.checkpoint)
    pairs, held_out = (Pairs(arguments.data / split, seed=seed) for split in ("train", "valid"))
    batches = [held_out.batch(question, 100) for _ in range(HELD_OUT // 100)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=cell["lr"], betas=(0.9, 0.98), weight_decay=0.01, fused=True)

    def logits(ids: Tensor, segments: Tensor) -> Tensor:
        found: Tensor = model(ids, head="answer", segments=segments if cell["segments"] else None)[0]
        return found

    @torch.no_grad()
    def accuracy() -> float:
        model.eval()
        right = sum(int((logits(ids, segments).argmax(1) == answers).sum()) for ids, segments, answers in batches)
        model.train()
        return 100 * right / HELD_OUT

    model.train()
    start, curve = time.process_time(), []
    updates, excluded, reached = 0, 0.0, None
    while (share := (time.process_time() - start - excluded) / arguments.seconds) < 1:
        optimizer.param_groups[0]["lr"] = cell["lr"] * min(1.0, share / WARM_UP, 1.5 - share)
        asked = cell["first"] if cell["first"] and share < 0.5 else question
        ids, segments, answers = pairs.batch(asked, cell["batch"])
        loss = F.cross_entropy(logits(ids, segments), answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        updates += 1
        if updates % EVERY == 0:
            before = time.process_time()
            curve.append(accuracy())
            reached = updates if reached is None and curve[-1] >= GOAL else reached
            excluded += time.process_time() - before
    return {"updates": updates, "reached": reached, "accuracy": accuracy(), "curve": curve}


def table(lines: list[Options]) -> list[str]:
    """A row a cell and question: each seed's updates, those until `GOAL`, and accuracy at the end."""
    rows = [
        f"| question | start | cell | s | updates | updates to {GOAL:.0f} % | accuracy |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    groups: dict[tuple[Any, ...], list[Options]] = {}
    for line in lines:
        groups.setdefault((line["question"], line["start"], line["cell"], line["seconds"]), []).append(line)
    for (question, start, cell, seconds), own in groups.items():
        updates = f"{statistics.mean(line['updates'] for line in own):,.0f}"
        reached = "; ".join("-" if line["reached"] is None else f"{line['reached']:,}" for line in own)
        shown = "; ".join(f"{line['accuracy']:.1f}" for line in own)
        rows.append(
            f"| {question} | {start or 'new weights'} | {cell} | {seconds:g} | {updates} | {reached} | {shown} |"
        )
    return [*rows, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--output-dir", type=Path, required=True, help="folder of results.jsonl, which grows")
    parser.add_argument("--questions", default="equal,words,word")
    parser.add_argument("--cells", default="random,today", help="names, joined by + to change all of it: deep+lr=5e-4")
    parser.add_argument("--checkpoint", type=Path, help="begin with these weights")
    parser.add_argument("--seconds", type=float, default=40, help="processor time of a cell")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--write", action="store_true", help="write the report into results/")
    arguments = parser.parse_args()
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    path = arguments.output_dir / "results.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    start = arguments.checkpoint.parent.name if arguments.checkpoint else ""
    asked = (arguments.questions.split(","), arguments.cells.split(","), map(int, arguments.seeds.split(",")))
    for question, name, seed in itertools.product(*asked):
        cell = {"question": question, "cell": name, "seed": seed, "seconds": arguments.seconds, "start": start}
        if not any(line == line | cell for line in lines):
            lines.append(cell | run(name, question, seed, arguments))
            print(json.dumps(lines[-1]), flush=True)
            with open(path, "a") as out:
                out.write(json.dumps(lines[-1]) + "\n")
    report = Report("comparing_cpu1", "Comparing two texts", __doc__ or "", machine())
    report.lines += table(lines)
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
