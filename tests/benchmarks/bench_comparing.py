"""What lets a small model compare two texts?

    OMP_NUM_THREADS=1 python -m tests.benchmarks.bench_comparing DATA-BIN --output-dir DIR [--questions equal,words,word,STS-B]
        [--cells random,small=0.3+matching=0+first=tokens] [--checkpoint FILE] [--seconds 40] [--seeds 1,2]
        [--raw GLUE --tokenizer FOLDER] [--write]

A classification head on `<s> a </s></s> b </s>` learns for so many seconds of processor time from pairs of 8 to 14 tokens each,
made anew from the training text for every update; accuracy is that on 1,000 pairs of the validation text, and a cell ends where
400 of them are at 95 %. The questions:

    equal         Is b the same text as a? Otherwise it is another one.
    words         Are words of b words of a? As many as fit are put in places of b's own words; or those of a third text are.
    word          The same with one word.
    STS-B, MRPC   The official rows in GLUE, as one input, for 2 epochs of batch 16; with `first=`, `words` before. The score is
                  the mean of Pearson and Spearman, or of accuracy and F1, on the development rows.

Words are tokens but for the 200 most frequent ones. Half of the answers are yes; both texts are of the same length, and neither
alone knows the answer: no other word of b is one of a.

Each cell is a model and settings (`PARTS`, `VALUES`), whose learning rate rises for 6 % of the time and falls to half from the
middle of it. With --checkpoint, cells begin with its weights and architecture. What is in DIR/results.jsonl is not done again.

"Attention to equals" is the largest mean weight, among the heads of a layer, from tokens of b that are also in a to those in a, before
and after learning: chance is one token of all, 0.04.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import random
import statistics
import time
import unittest.mock
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score
from torch import Tensor

from roberta_plugin.hub.interface import from_pretrained
from roberta_plugin.models.attention import EagerAttention
from roberta_plugin.models.config import SIZES, sizes
from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.tasks.block_task import load_vocabulary
from tests.benchmarks import harness
from tests.benchmarks.made_pairs import ROWS, SPECIAL, Pairs, equals, joined, official

Options = dict[str, Any]
HELD_OUT, WATCHED, EVERY, GOAL, ENOUGH = 1000, 400, 100, 75.0, 95.0
WARM_UP, MASKED, EPOCHS, BATCH_OF_ROWS = 0.06, 0.3, 2, 16

PARTS: dict[str, Options] = {
    "random": {},
    "today": {"init_attention": "neighbors", "zero_init_residual": True},
    "rotary": {"position_encoding": "rotary"},
    "segments": {"segments": True},
    "forget": {"forget": True},
}
VALUES: dict[str, Any] = {
    "lr": float, "batch": int, "first": str, "share": float, "matching": int, "small": float, "uniform": int
}  # fmt: skip
"""What the parts of a cell, joined by +, change of 2 layers of width 128, norms before sublayers, init-std width, lr 1e-3, batch 32.

forget        segments while pairs are made, none for the official rows
first=        what is learned for the `share=` (0.5) of the time that comes first: another question; `tokens`: of each token of b,
              does it stand in a?; or masked LM (30 %): `doubled`, on a text and its copy, `shuffled`, on a text and its tokens in
              another order
matching=N    the keys of layer N begin with the matrix of its queries, so that a token attends to its equals
small=X       embeddings of positions and segments begin X times as large
uniform=N     made-up text of N tokens that are equally frequent
"""


def settings_of(name: str) -> Options:
    found: Options = {"lr": 1e-3, "batch": 32, "share": 0.5, "segments": False, "forget": False}
    found |= dict.fromkeys(("first", "matching", "small", "uniform"))
    found |= sizes(*SIZES["tiny"]) | {"encoder_normalize_before": True, "init_std": "width"}
    found |= {"dropout": 0.0, "attention_dropout": 0.0, "matmul_precision": "medium"}
    for part in name.split("+"):
        option, _, value = part.partition("=")
        found |= {option: VALUES[option](value)} if value else PARTS[part]
    return found


def build(cell: Options, data: Path, checkpoint: Path | None) -> Any:
    if checkpoint is not None:
        model: Any = from_pretrained(checkpoint.parent, checkpoint.name, data_name_or_path=str(data)).model
    else:
        task = SimpleNamespace(
            source_dictionary=load_vocabulary(data)[0], max_positions=lambda: 128, num_segments=2 * cell["segments"]
        )
        model = FastRobertaModel.build_model(SimpleNamespace(**cell), task)
    encoder = model.encoder.sentence_encoder
    for embeddings in (encoder.embed_positions, encoder.segment_embeddings):
        if cell["small"] and embeddings is not None:
            embeddings.weight.data *= cell["small"]
    if cell["matching"] is not None:
        attention = encoder.layers[cell["matching"]].self_attn
        attention.k_proj.load_state_dict(attention.q_proj.state_dict())
    return model


class Watching(EagerAttention):
    """Attention that notes its mean weight from tokens of b to their equals in a, of the best head of each layer."""

    def __init__(self, equal: Tensor) -> None:
        self.equal = equal
        self.found: list[float] = []

    def attend_where(self, allowed: Tensor | None, q: Tensor, k: Tensor, v: Tensor, dropout_prob: float) -> Tensor:
        scores = ((q * q.size(-1) ** -0.5) @ k.transpose(-2, -1)).float()
        weights = (scores if allowed is None else scores.masked_fill(~allowed, -1e9)).softmax(-1)
        on_equals = (weights * self.equal[:, None]).sum(-1).transpose(1, 2)[self.equal.any(-1)]  # (tokens, H)
        self.found.append(round(float(on_equals.mean(0).max()), 3))
        return super().attend_where(allowed, q, k, v, dropout_prob)


def step(optimizer: torch.optim.Optimizer, loss: Tensor, lr: float) -> None:
    optimizer.param_groups[0]["lr"] = lr
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


class Trial:
    """One cell, question and seed."""

    def __init__(self, name: str, question: str, seed: int, arguments: argparse.Namespace) -> None:
        self.cell, self.arguments, self.seed = settings_of(name), arguments, seed
        torch.manual_seed(seed)
        torch.set_float32_matmul_precision("medium")
        self.model = build(self.cell, arguments.data, arguments.checkpoint)
        self.model.register_head("answer", "classification", num_classes=2)
        self.model.register_head("tokens", "token", num_classes=2)
        self.mask_id = load_vocabulary(arguments.data)[0].index("<mask>")
        self.rows = question if question in ROWS else None
        self.question = "words" if self.rows else question
        uniform = self.cell["uniform"]
        self.pairs, held_out = (
            Pairs(arguments.data / split, seed=seed, uniform=uniform) for split in ("train", "valid")
        )
        self.held_out = [held_out.batch(self.question, 100) for _ in range(HELD_OUT // 100)]

    def call(self, ids: Tensor, segments: Tensor, *, forget: bool = False, **asked: Any) -> Tensor:
        segments = segments * (self.cell["segments"] and not forget)
        found: Tensor = self.model(ids, segments=segments, **asked)[0]
        return found

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), betas=(0.9, 0.98), weight_decay=0.01, fused=True)

    def loss_of(self, asked: str) -> Tensor:
        ids, segments, answers = self.pairs.batch(self.question if asked == "tokens" else asked, self.cell["batch"])
        if asked in ("doubled", "shuffled"):
            chosen = (torch.rand(ids.shape) < MASKED) & (ids >= SPECIAL)
            logits = self.call(ids.masked_fill(chosen, self.mask_id), segments, masked_tokens=chosen)
            return F.cross_entropy(logits, ids[chosen])
        if asked == "tokens":
            of_b, equal = equals(ids, segments)
            return F.cross_entropy(self.call(ids, segments, head="tokens")[of_b], equal.any(-1)[of_b].long())
        return F.cross_entropy(self.call(ids, segments, head="answer"), answers.long())

    @torch.no_grad()
    def accuracy(self, number: int = HELD_OUT) -> float:
        self.model.eval()
        batches = self.held_out[: number // 100]
        right = [
            (self.call(*batch[:2], head="answer").argmax(1) == batch[2]).float().mean().item() for batch in batches
        ]
        self.model.train()
        return 100 * statistics.mean(right)

    @torch.no_grad()
    def attention_to_equals(self) -> list[float]:
        ids, segments, _ = self.held_out[0]
        watching = Watching(equals(ids, segments)[1])
        with unittest.mock.patch("roberta_plugin.models.attention.choose_backend", return_value=watching):
            self.call(ids, segments, features_only=True)
        return watching.found

    def learn(self) -> Options:
        """The question on made pairs."""
        cell, optimizer = self.cell, self.optimizer()
        seconds = 0.0 if self.rows and not cell["first"] else self.arguments.seconds
        start, excluded, updates = time.process_time(), 0.0, 0
        curve: list[float] = []
        while seconds and (share := (time.process_time() - start - excluded) / seconds) < 1:
            loss = self.loss_of(cell["first"] if cell["first"] and share < cell["share"] else self.question)
            step(optimizer, loss, cell["lr"] * min(1.0, share / WARM_UP, 1.5 - share))
            updates += 1
            if updates % EVERY == 0:
                before = time.process_time()
                curve.append(self.accuracy(WATCHED))
                excluded += time.process_time() - before
                if curve[-1] >= ENOUGH and not self.rows:
                    break
        return {"updates": updates, "curve": curve, "made_pairs": self.accuracy()}

    def finetune(self, name: str) -> list[float]:
        """Learn the official rows; the score after each epoch."""
        arguments, outputs = self.arguments, ROWS[name][-1]
        where = (arguments.raw, arguments.tokenizer, arguments.data, arguments.longest)
        train, dev = (list(official(name, split, *where)) for split in ("train", "dev"))
        self.model.register_head("rows", "classification", num_classes=outputs)
        logits = functools.partial(self.call, head="rows", forget=self.cell["forget"])
        optimizer, rng, scores = self.optimizer(), random.Random(self.seed), []
        starts = range(0, len(train), BATCH_OF_ROWS)
        for epoch in range(EPOCHS):
            self.model.train()
            rng.shuffle(train)
            for number, at in enumerate(starts, start=epoch * len(starts)):
                share = number / len(starts) / EPOCHS
                ids, segments, labels = joined(train[at : at + BATCH_OF_ROWS])
                found = logits(ids, segments)
                loss = F.mse_loss(found[:, 0], labels) if outputs == 1 else F.cross_entropy(found, labels.long())
                step(optimizer, loss, arguments.rows_lr * min(share / WARM_UP, (1 - share) / (1 - WARM_UP)))
            self.model.eval()
            with torch.no_grad():
                given = torch.cat([logits(*joined(dev[at : at + 100])[:2]) for at in range(0, len(dev), 100)]).numpy()
            right = np.array([label for *_, label in dev])
            if outputs == 1:
                both = pearsonr(given[:, 0], right)[0], spearmanr(given[:, 0], right)[0]
            else:
                both = accuracy_score(right, given.argmax(1)), f1_score(right, given.argmax(1))
            scores.append(100 * float(np.mean(both)))
        return scores

    def run(self) -> Options:
        before = self.attention_to_equals()
        found = self.learn() | {"attention": [before, self.attention_to_equals()]}
        if self.rows:
            found["scores"] = self.finetune(self.rows)
        return found


def rows_of(lines: list[Options]) -> list[tuple[str, ...]]:
    """A row a question, start, cell and time, with the seeds side by side."""
    rows = []
    groups: dict[tuple[Any, ...], list[Options]] = {}
    for line in lines:
        groups.setdefault((line["question"], line["start"], line["cell"], line["seconds"]), []).append(line)
    for (question, start, cell, seconds), own in groups.items():
        updates = "; ".join(f"{line['updates']:,}" for line in own)
        reached = "; ".join(
            next((f"{EVERY * at:,}" for at, x in enumerate(line["curve"], 1) if x >= GOAL), "-") for line in own
        )
        made = "; ".join(f"{line['made_pairs']:.1f}" if line["updates"] else "" for line in own)
        scores = "; ".join(f"{line['scores'][-1]:.1f}" for line in own if "scores" in line)
        attention = " to ".join(f"{max(side):.2f}" for side in own[0]["attention"])
        shown = (question, start or "new weights", cell, f"{seconds:g}")
        rows.append((*shown, updates, reached, made, scores, attention))
    return rows


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--output-dir", type=Path, required=True, help="folder of results.jsonl, which grows")
    parser.add_argument("--questions", default="equal,words,word")
    parser.add_argument(
        "--cells", default="random,today", help="names, joined by + to change all of it: rotary+lr=5e-4"
    )
    parser.add_argument("--checkpoint", type=Path, help="begin with these weights")
    parser.add_argument("--seconds", type=float, default=40, help="processor time of a cell, but for official rows")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--raw", type=Path, help="folder of STS-B and MRPC, as of GLUE")
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--longest", type=int, default=62, help="most tokens of official rows")
    parser.add_argument("--rows-lr", type=float, default=1e-3, help="highest learning rate there")
    arguments = parser.parse_args()
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    path = arguments.output_dir / "results.jsonl"
    lines = harness.known(path)
    start = arguments.checkpoint.parent.name if arguments.checkpoint else ""
    asked = (arguments.questions.split(","), arguments.cells.split(","), map(int, arguments.seeds.split(",")))
    for question, name, seed in itertools.product(*asked):
        cell = {"question": question, "cell": name, "seed": seed, "seconds": arguments.seconds, "start": start}
        if not any(line == line | cell for line in lines):
            lines.append(cell | Trial(name, question, seed, arguments).run())
            harness.add(path, lines[-1])
    report = harness.Report("comparing_cpu1", "Comparing two texts", __doc__)
    head = ("question", "start", "cell", "s", "updates", f"to {GOAL:.0f} %", "made pairs", "STS-B or MRPC")
    report.rows((*head, "attention to equals"), rows_of(lines), texts=3)
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
