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
import csv
import functools
import itertools
import json
import random
import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score
from torch import Tensor

from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.hub.interface import from_pretrained
from roberta_plugin.models.attention import BACKENDS, EagerAttention
from roberta_plugin.models.config import SIZES, sizes
from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.tasks.block_task import load_vocabulary
from tests.benchmarks.report import Report, machine

Options = dict[str, Any]

BOS, PAD, EOS, SPECIAL, FREQUENT = 0, 1, 2, 4, 200
LENGTHS = (8, 14)
HELD_OUT, EVERY, GOAL, ENOUGH = 1000, 100, 75.0, 95.0
WARM_UP = 0.06
TOKENS_READ = 2_000_000

PARTS: dict[str, Options] = {
    "random": {},
    "today": {"init_attention": "neighbors", "zero_init_residual": True},
    "quiet": {"zero_init_residual": True},
    "plain": {"encoder_normalize_before": False, "init_std": "0.02"},
    "rotary": {"position_encoding": "rotary"},
    "qk-norm": {"qk_norm": True},
    "segments": {"segments": True},
    "forget": {"forget": True},
    "heads": {"encoder_attention_heads": 8},
    "deep": {"encoder_layers": 4},
    "mini": sizes(*SIZES["mini"]),
}
"""What the parts of a cell, joined by +, change of 2 layers of width 128, norms before sublayers, init-std width, lr 1e-3, batch 32."""
VALUES: dict[str, Any] = {"lr": float, "batch": int, "first": str, "uniform": int, "matching": int, "share": float, "small": float}


def is_word(token: int) -> bool:
    """Whether a token is none of the most frequent ones."""
    return token >= SPECIAL + FREQUENT


class Pairs:
    """Pairs from the text of one split, or from made-up text of `uniform` tokens, all as frequent."""

    def __init__(self, prefix: Path, *, seed: int, uniform: int | None = None) -> None:
        tokens = MmapTokens(prefix)
        ids = np.concatenate([tokens[item] for item in range(min(len(tokens), TOKENS_READ // 20))])
        if uniform:
            ids = SPECIAL + FREQUENT + np.random.default_rng(seed).integers(uniform, size=len(ids))
        self.ids: list[int] = ids[ids != EOS].tolist()
        self.random = random.Random(seed)

    def text(self, length: int) -> list[int]:
        """So many tokens from anywhere."""
        start = self.random.randrange(len(self.ids) - length)
        return self.ids[start : start + length]

    def other_word(self, taken: set[int]) -> int:
        """A word of the text, as frequent as there, that is not in `taken`."""
        while not is_word(token := self.random.choice(self.ids)) or token in taken:
            pass
        return token

    def pair(self, question: str) -> tuple[list[int], list[int], bool]:
        """a, b and the answer."""
        length = self.random.randint(*LENGTHS)
        a, b, answer = self.text(length), self.text(length), self.random.random() < 0.5
        if question == "equal":
            return a, (a if answer else b), answer
        taken = set(a)
        b = [self.other_word(taken) if is_word(token) and token in taken else token for token in b]
        of_a = sorted(filter(is_word, taken))
        of_other = sorted(set(filter(is_word, self.text(length))) - taken)
        places = [place for place, token in enumerate(b) if is_word(token)]
        number = min(len(of_a), len(of_other), len(places), 1 if question == "word" else len(b))
        if not number:
            return self.pair(question)
        new = self.random.sample(of_a if answer else of_other, number)
        for place, token in zip(self.random.sample(places, number), new, strict=True):
            b[place] = token
        return a, b, answer

    def batch(self, question: str, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Ids (B, T), segments (B, T) and answers (B,)."""
        if question in ("doubled", "shuffled"):
            texts = [self.text(self.random.randint(*LENGTHS)) for _ in range(number)]
            pairs = [(a, a if question == "doubled" else self.random.sample(a, len(a)), True) for a in texts]
        elif question == "single":
            texts = [self.text(2 * self.random.randint(*LENGTHS)) for _ in range(number)]
            pairs = [(text[: len(text) // 2], text[len(text) // 2 :], True) for text in texts]
        else:
            pairs = [self.pair(question) for _ in range(number)]
        return padded(pairs)


def settings_of(name: str) -> Options:
    """The options of a cell."""
    found: Options = {"lr": 1e-3, "batch": 32, "first": None, "segments": False, "matching": None, "uniform": None}
    found |= {"share": 0.5, "small": None, "forget": False}
    found |= sizes(*SIZES["tiny"]) | {"encoder_normalize_before": True, "init_std": "width"}
    found |= {"dropout": 0.0, "attention_dropout": 0.0, "matmul_precision": "medium"}
    for part in name.split("+"):
        option, _, value = part.partition("=")
        found |= {option: VALUES[option](value)} if value else PARTS[part]
    return found


def build(cell: Options, data: Path, checkpoint: Path | None) -> FastRobertaModel:
    """The model of a cell, with heads called answer and tokens."""
    if checkpoint is not None:
        model = from_pretrained(checkpoint.parent, checkpoint.name, data_name_or_path=str(data)).model
    else:
        segments = 2 if cell["segments"] else 0
        task = SimpleNamespace(
            source_dictionary=load_vocabulary(data)[0], max_positions=lambda: 128, num_segments=segments
        )
        model = FastRobertaModel.build_model(SimpleNamespace(**cell), task)
    encoder = model.encoder.sentence_encoder
    for embeddings in (encoder.embed_positions, encoder.segment_embeddings):
        if cell["small"] and embeddings is not None:
            embeddings.weight.data *= cell["small"]
    model.register_head("answer", "classification", num_classes=2)
    model.register_head("tokens", "token", num_classes=2)
    if cell["matching"] is not None:
        attention = encoder.layers[cell["matching"]].self_attn
        attention.k_proj.load_state_dict(attention.q_proj.state_dict())
    return model


ROWS = {"STS-B": (7, 8, 9, 5.0, 1), "MRPC": (3, 4, 0, 1.0, 2)}
"""Columns of both texts and of the label, what a label is divided by, outputs."""


@functools.cache
def read_rows(name: str, split: str, raw: Path, tokenizer: Path, data: Path, longest: int) -> list[tuple[list[int], list[int], float]]:
    """Both texts as ids, and the label."""
    first, second, label, scale, _ = ROWS[name]
    encoder = Encoder(load_tokenizer(tokenizer), load_vocabulary(data)[1])
    with open(raw / name / f"{split}.tsv", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    found = []
    for row in rows:
        a, b = encoder.ids(row[first]).tolist(), encoder.ids(row[second]).tolist()
        while len(a) + len(b) > longest - 4:
            (a if len(a) > len(b) else b).pop()
        found.append((a, b, float(row[label]) / scale))
    return found


def padded(pairs: list[tuple[list[int], list[int], float]]) -> tuple[Tensor, Tensor, Tensor]:
    """Ids (B, T), segments (B, T) and answers (B,) of `<s> a </s></s> b </s>`."""
    rows = np.full((len(pairs), max(len(a) + len(b) for a, b, _ in pairs) + 4), PAD)
    segments = np.zeros_like(rows)
    for row, segment, (a, b, _) in zip(rows, segments, pairs, strict=True):
        end = len(a) + len(b) + 4
        row[:end] = [BOS, *a, EOS, EOS, *b, EOS]
        segment[len(a) + 2 : end] = 1
    return torch.from_numpy(rows), torch.from_numpy(segments), torch.tensor([float(answer) for *_, answer in pairs])


def finetune(model: FastRobertaModel, cell: Options, name: str, seed: int, arguments: argparse.Namespace) -> Options:
    """Epochs over the official rows; the score on the development rows after each."""
    outputs = ROWS[name][-1]
    where = (arguments.raw, arguments.tokenizer, arguments.data, arguments.longest)
    train, dev = (list(read_rows(name, split, *where)) for split in ("train", "dev"))
    model.register_head("rows", "classification", num_classes=outputs)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    rng, scores, update = random.Random(seed), [], 0
    updates = arguments.epochs * -(-len(train) // arguments.rows_batch)

    def logits(ids: Tensor, segments: Tensor) -> Tensor:
        return model(ids, head="rows", segments=segments if cell["segments"] and not cell["forget"] else None)[0]

    for _ in range(arguments.epochs):
        model.train()
        rng.shuffle(train)
        for at in range(0, len(train), arguments.rows_batch):
            ids, segments, labels = padded(train[at : at + arguments.rows_batch])
            share = update / updates
            optimizer.param_groups[0]["lr"] = arguments.rows_lr * min(share / WARM_UP, (1 - share) / (1 - WARM_UP))
            found = logits(ids, segments)
            loss = F.mse_loss(found[:, 0], labels) if outputs == 1 else F.cross_entropy(found, labels.long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            update += 1
        model.eval()
        with torch.no_grad():
            given = torch.cat([logits(*padded(dev[at : at + 100])[:2]) for at in range(0, len(dev), 100)]).numpy()
        right = np.array([label for *_, label in dev])
        if outputs == 1:
            score = (pearsonr(given[:, 0], right)[0] + spearmanr(given[:, 0], right)[0]) / 2
        else:
            answers = given.argmax(1)
            score = (accuracy_score(right, answers) + f1_score(right, answers)) / 2
        scores.append(round(100 * float(score), 1))
    return {"accuracy": scores[-1], "scores": scores, "epochs": arguments.epochs, "rows_lr": arguments.rows_lr}


def stands_in_a(ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
    """Which positions are tokens of b (B, T), and for each whether it equals each token of a (B, T, T)."""
    of_b = (segments == 1) & (ids >= SPECIAL)
    return of_b, (ids[:, :, None] == ids[:, None, :]) & of_b[:, :, None] & (segments == 0)[:, None, :]


class Watching(EagerAttention):
    """Attention that notes how much of it goes from the tokens of b to their equals in a, by head."""

    def __init__(self) -> None:
        self.equal: Tensor | None = None
        self.sums: list[Tensor] = []

    def attend_where(self, allowed: Tensor | None, q: Tensor, k: Tensor, v: Tensor, dropout_prob: float) -> Tensor:
        """See `MaskedAttention`."""
        if q.size(2) == k.size(2):
            scores = ((q * q.size(-1) ** -0.5) @ k.transpose(-2, -1)).float()
            weights = (scores if allowed is None else scores.masked_fill(~allowed, -1e9)).softmax(-1)
            matched = (weights * self.equal[:, None]).sum(-1)[:, :, :]  # (B, H, T)
            has = self.equal.any(-1)
            self.sums.append(matched.transpose(1, 2)[has].mean(0))
        return super().attend_where(allowed, q, k, v, dropout_prob)


def run(name: str, question: str, seed: int, arguments: argparse.Namespace) -> Options:
    """Learn one question, and say how accuracy rose."""
    cell = settings_of(name)
    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("medium")
    model = build(cell, arguments.data, arguments.checkpoint)
    mask_id = load_vocabulary(arguments.data)[0].index("<mask>")
    pairs, held_out = (Pairs(arguments.data / split, seed=seed, uniform=cell["uniform"]) for split in ("train", "valid"))
    of_rows, question = question, question if question not in ROWS else "words"
    batches = [held_out.batch(question, 100) for _ in range(HELD_OUT // 100)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=cell["lr"], betas=(0.9, 0.98), weight_decay=0.01, fused=True)

    def loss_of(asked: str) -> Tensor:
        ids, segments, answers = pairs.batch(question if asked == "tokens" else asked, cell["batch"])
        layout = {"segments": segments if cell["segments"] else None}
        if asked in ("doubled", "shuffled", "single"):
            chosen = (torch.rand(ids.shape) < 0.3) & (ids >= SPECIAL)
            logits = model(ids.masked_fill(chosen, mask_id), masked_tokens=chosen, **layout)[0]
            return F.cross_entropy(logits, ids[chosen])
        if asked == "tokens":
            of_b, equal = stands_in_a(ids, segments)
            return F.cross_entropy(model(ids, head="tokens", **layout)[0][of_b], equal.any(-1)[of_b].long())
        return F.cross_entropy(model(ids, head="answer", **layout)[0], answers.long())

    @torch.no_grad()
    def accuracy(number: int = len(batches)) -> float:
        model.eval()
        right = 0
        for ids, segments, answers in batches[:number]:
            logits = model(ids, head="answer", segments=segments if cell["segments"] else None)[0]
            right += int((logits.argmax(1) == answers).sum())
        model.train()
        return right / number

    @torch.no_grad()
    def attention_to_equals() -> list[list[float]]:
        ids, segments, _ = batches[0]
        watching, usual = Watching(), BACKENDS["eager"]
        watching.equal = stands_in_a(ids, segments)[1]
        BACKENDS["eager"] = watching
        for layer in model.encoder.sentence_encoder.layers:
            layer.self_attn.backend = "eager"
        model.eval()
        model(ids, features_only=True, segments=segments if cell["segments"] else None)
        model.train()
        for layer in model.encoder.sentence_encoder.layers:
            layer.self_attn.backend = "auto"
        BACKENDS["eager"] = usual
        return [[round(float(x), 3) for x in heads] for heads in watching.sums]

    model.train()
    start, curve, losses = time.process_time(), [], []
    before_training = attention_to_equals()
    updates, excluded, reached = 0, 0.0, None
    seconds = arguments.seconds if of_rows not in ROWS or cell["first"] else 0
    while seconds and (share := (time.process_time() - start - excluded) / seconds) < 1:
        optimizer.param_groups[0]["lr"] = cell["lr"] * min(1.0, share / WARM_UP, 1.5 - share)
        loss = loss_of(cell["first"] if cell["first"] and share < cell["share"] else question)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        updates += 1
        losses.append(loss.item())
        if updates % EVERY == 0:
            before = time.process_time()
            curve.append((accuracy(4), round(statistics.mean(losses[-EVERY:]), 3)))
            reached = updates if reached is None and curve[-1][0] >= GOAL else reached
            excluded += time.process_time() - before
            if curve[-1][0] >= ENOUGH and of_rows not in ROWS:
                break
    found = {"updates": updates, "reached": reached, "curve": curve}
    if of_rows in ROWS:
        found |= finetune(model, cell, of_rows, seed, arguments)
    else:
        found["accuracy"] = accuracy()
    if arguments.save:
        torch.save(model.state_dict(), arguments.save)
    return found | {"attention": [before_training, attention_to_equals()]}


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
    parser.add_argument("--save")
    parser.add_argument("--raw", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--longest", type=int, default=62)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rows-lr", type=float, default=1e-3)
    parser.add_argument("--rows-batch", type=int, default=16)
    parser.add_argument("--write", action="store_true", help="write the report into results/")
    arguments = parser.parse_args()
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    path = arguments.output_dir / "results.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    start = arguments.checkpoint.parent.name if arguments.checkpoint else ""
    asked = (arguments.questions.split(","), arguments.cells.split(","), map(int, arguments.seeds.split(",")))
    for question, name, seed in itertools.product(*asked):
        more = {"longest": arguments.longest, "epochs": arguments.epochs, "rows_lr": arguments.rows_lr}
        cell = (more if question in ROWS else {}) | {"question": question, "cell": name, "seed": seed, "seconds": arguments.seconds, "start": start}
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
