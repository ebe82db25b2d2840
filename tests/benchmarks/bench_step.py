"""One training step on a CPU: ours beside fairseq's `roberta` and Hugging Face's RobertaForMaskedLM.

    python -m tests.benchmarks.bench_step [--write]

The same 4-layer model (dimension 256, 4 heads, 50,265 symbols), the same batches and the paper's optimizer settings
(Adam, betas 0.9 and 0.98, decoupled weight decay). A step is forward, backward and update. Sides take turns, step by
step, so that a change of the machine's speed meets all of them.
"""

from __future__ import annotations

import argparse
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from fairseq.criterions.masked_lm import MaskedLmLoss
from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.model import base_architecture
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig

from roberta_plugin.criterions.masked_lm import RobertaMaskedLMCriterion
from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.optim.adamw import RobertaAdamW, RobertaAdamWConfig
from tests.benchmarks.report import Report, machine
from tests.hugging_face import import_transformers
from tests.tiny_models import TinyTask

LAYERS, DIM, FFN, HEADS, VOCAB, LENGTH = 4, 256, 1024, 4, 50265, 512
LR = 1e-4


def make_batches(count: int, *, num_blocks: int) -> list[dict]:
    special = np.isin(np.arange(VOCAB), [0, 1, 2, 3, VOCAB - 1])
    masker = Masker(MaskingRecipe(), mask_id=VOCAB - 1, pad_id=1, never_masked=special, never_drawn=special)
    rng = np.random.default_rng(0)
    batches = []
    for number in range(count):
        tokens = rng.integers(4, VOCAB - 1, (num_blocks, LENGTH))
        tokens[:, 0] = 0
        passes, indices = np.ones(num_blocks, dtype=np.int64), np.arange(num_blocks) + number
        masked = masker.mask(tokens, seed=1, passes=passes, indices=indices)
        lengths = torch.full((num_blocks,), LENGTH)
        batches.append(
            {
                "net_input": {"src_tokens": torch.from_numpy(masked.tokens), "src_lengths": lengths},
                "target": torch.from_numpy(masked.targets),
                "predicted": {
                    "positions": torch.from_numpy(masked.positions),
                    "labels": torch.from_numpy(masked.labels),
                    "number": masked.num_predicted,
                },
                "ntokens": tokens.size,
                "npairs": num_blocks * LENGTH**2,
                "nsentences": num_blocks,
            }
        )
    return batches


def options(attention_dropout: float) -> Namespace:
    sizes = {"encoder_layers": LAYERS, "encoder_embed_dim": DIM, "encoder_ffn_embed_dim": FFN}
    dropout = {"dropout": 0.1, "attention_dropout": attention_dropout, "activation_dropout": 0.0}
    return Namespace(**sizes, **dropout, encoder_attention_heads=HEADS, max_positions=LENGTH)


def step_of(model: Any, criterion: Any, optimizer: Any) -> Callable[[dict], float]:
    """A training step with fairseq's kinds of criterion and optimizer."""

    def step(batch: dict) -> float:
        optimizer.zero_grad()
        loss, sample_size, _ = criterion(model, batch)
        optimizer.backward(loss)
        optimizer.multiply_grads(1 / sample_size)
        optimizer.step()
        return loss.item() / int(sample_size)

    return step


def fairseq_step(attention_dropout: float) -> Callable[[dict], float]:
    task, args = TinyTask(VOCAB - 5, LENGTH), options(attention_dropout)
    base_architecture(args)
    model = RobertaModel.build_model(args, task).train()
    criterion = MaskedLmLoss(Namespace(tpu=False), task)
    cfg = FairseqAdamConfig(adam_betas="(0.9, 0.98)", adam_eps=1e-6, weight_decay=0.01, lr=[LR])
    cfg.tpu = False
    optimizer = FairseqAdam(cfg, list(model.parameters()))
    return step_of(model, criterion, optimizer)


def our_step(attention_dropout: float) -> Callable[[dict], float]:
    task = TinyTask(VOCAB - 5, LENGTH)
    model = FastRobertaModel.build_model(options(attention_dropout), task).train()
    criterion = RobertaMaskedLMCriterion(task)
    optimizer = RobertaAdamW(RobertaAdamWConfig(lr=[LR]), list(model.parameters()))
    return step_of(model, criterion, optimizer)


def hugging_face_step(attention_dropout: float) -> Callable[[dict], float]:
    transformers = import_transformers()
    config = transformers.RobertaConfig(
        vocab_size=VOCAB,
        hidden_size=DIM,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=FFN,
        max_position_embeddings=LENGTH + 2,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        attention_probs_dropout_prob=attention_dropout,
        attn_implementation="sdpa",
    )
    model = transformers.RobertaForMaskedLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01)

    def step(batch: dict) -> float:
        optimizer.zero_grad()
        tokens, targets = batch["net_input"]["src_tokens"], batch["target"]
        labels = targets.masked_fill(targets.eq(1), -100)  # as its masked collator marks what is not predicted
        loss = model(input_ids=tokens, attention_mask=tokens.ne(1).long(), labels=labels).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def measure(sides: dict[str, Callable[[dict], float]], batches: list[dict], *, warm_up: int) -> dict[str, list[float]]:
    """Seconds of each side's steps, the first `warm_up` ones left out."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number, batch in enumerate(batches):
        for name, step in sides.items():
            torch.manual_seed(number)
            start = time.perf_counter()
            step(batch)
            if number >= warm_up:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the report to tests/benchmarks/results")
    parser.add_argument("--steps", type=int, default=7, help="measured steps a side")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before them")
    parser.add_argument("--batch-size", type=int, default=8, help="blocks of 512 tokens in a batch")
    arguments = parser.parse_args()
    report = Report("training_step_cpu2", "One training step on a CPU", __doc__ or "", machine())
    for attention_dropout in (0.1, 0.0):
        sides = {
            "fairseq": fairseq_step(attention_dropout),
            "Hugging Face": hugging_face_step(attention_dropout),
            "ours": our_step(attention_dropout),
        }
        batches = make_batches(arguments.steps + arguments.warm_up, num_blocks=arguments.batch_size)
        seconds = measure(sides, batches, warm_up=arguments.warm_up)
        report.table(
            f"attention dropout {attention_dropout}, {arguments.batch_size} x {LENGTH} tokens",
            seconds,
            baseline="fairseq",
            amount=arguments.batch_size * LENGTH,
            unit="tokens",
        )
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
