"""One training step on a CPU: ours beside fairseq's `roberta` and Hugging Face's RobertaForMaskedLM.

    python -m tests.benchmarks.bench_step [--write]
    python -m tests.benchmarks.bench_step --arch base --batch-size 2 [--compile] [--write]

The same model (by default 4 layers, dimension 256, 4 heads; 50,265 symbols), the same batches and the paper's optimizer
settings (Adam, betas 0.9 and 0.98, decoupled weight decay). A step is forward, backward and update. Sides take turns,
step by step, so that a change of the machine's speed meets all of them. "masked only": Hugging Face's model with its
LM head on the predicted positions alone, its fused optimizer, and with --compile also torch.compile. "bf16 products":
torch may round (torch.set_float32_matmul_precision("medium"), --matmul-precision medium of ours) on processors that
multiply bf16: fp32 throughout, but for the inputs and results of matrix products, and in ours also what lies between two
products of attention or of feed-forward.
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
from roberta_plugin.models.config import SIZES
from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.optim.adamw import RobertaAdamW, RobertaAdamWConfig
from tests.benchmarks.report import Report, machine
from tests.hugging_face import import_transformers
from tests.tiny_models import TinyTask

VOCAB, LENGTH = 50265, 512
SHAPES = {"4 layers": (4, 256, 1024, 4), **SIZES}
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


def options(arch: str, attention_dropout: float) -> Namespace:
    layers, dim, ffn_dim, heads = SHAPES[arch]
    sizes = {"encoder_layers": layers, "encoder_embed_dim": dim, "encoder_ffn_embed_dim": ffn_dim}
    dropout = {"dropout": 0.1, "attention_dropout": attention_dropout, "activation_dropout": 0.0}
    return Namespace(**sizes, **dropout, encoder_attention_heads=heads, max_positions=LENGTH)


def step_of(model: Any, criterion: Any, optimizer: Any) -> Callable[[dict], float]:
    """A training step with fairseq's kinds of criterion and optimizer."""

    def step(batch: dict) -> float:
        loss, sample_size, _ = criterion(model, batch)
        optimizer.backward(loss)
        optimizer.multiply_grads(1 / sample_size)
        optimizer.step()
        optimizer.zero_grad()  # here, because all sides' models share the memory
        return loss.item() / int(sample_size)

    return step


def fairseq_step(arch: str, attention_dropout: float) -> Callable[[dict], float]:
    task, args = TinyTask(VOCAB - 5, LENGTH), options(arch, attention_dropout)
    base_architecture(args)
    model = RobertaModel.build_model(args, task).train()
    criterion = MaskedLmLoss(Namespace(tpu=False), task)
    cfg = FairseqAdamConfig(adam_betas="(0.9, 0.98)", adam_eps=1e-6, weight_decay=0.01, lr=[LR])
    cfg.tpu = False
    optimizer = FairseqAdam(cfg, list(model.parameters()))
    return step_of(model, criterion, optimizer)


def our_step(arch: str, attention_dropout: float) -> Callable[[dict], float]:
    task = TinyTask(VOCAB - 5, LENGTH)
    model = FastRobertaModel.build_model(options(arch, attention_dropout), task).train()
    criterion = RobertaMaskedLMCriterion(task)
    optimizer = RobertaAdamW(RobertaAdamWConfig(lr=[LR]), list(model.parameters()))
    return step_of(model, criterion, optimizer)


def rounding(step: Callable[[dict], float]) -> Callable[[dict], float]:
    """The same step, in which torch may make matrix products in bf16."""

    def step_with_rounding(batch: dict) -> float:
        torch.set_float32_matmul_precision("medium")
        try:
            return step(batch)
        finally:
            torch.set_float32_matmul_precision("highest")

    return step_with_rounding


def hugging_face_step(
    arch: str, attention_dropout: float, *, masked_only: bool = False, is_compiled: bool = False
) -> Callable[[dict], float]:
    transformers = import_transformers()
    layers, dim, ffn_dim, heads = SHAPES[arch]
    config = transformers.RobertaConfig(
        vocab_size=VOCAB,
        hidden_size=dim,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=ffn_dim,
        max_position_embeddings=LENGTH + 2,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        attention_probs_dropout_prob=attention_dropout,
        attn_implementation="sdpa",
    )
    model = transformers.RobertaForMaskedLM(config).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LR, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01, fused=masked_only or None
    )
    encode = torch.compile(model.roberta) if is_compiled else model.roberta

    def step(batch: dict) -> float:
        tokens, targets = batch["net_input"]["src_tokens"], batch["target"]
        if masked_only:  # no padding in these batches: no mask needed
            is_predicted = targets.ne(1)
            logits = model.lm_head(encode(input_ids=tokens).last_hidden_state[is_predicted])
            loss = torch.nn.functional.cross_entropy(logits, targets[is_predicted])
        else:
            labels = targets.masked_fill(targets.eq(1), -100)  # as its masked collator marks what is not predicted
            loss = model(input_ids=tokens, attention_mask=tokens.ne(1).long(), labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
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
    parser.add_argument("--arch", choices=SHAPES, default="4 layers", help="size of the model")
    parser.add_argument("--compile", action="store_true", help="also Hugging Face's compiled, which takes minutes")
    parser.add_argument("--batch-size", type=int, default=8, help="blocks of 512 tokens in a batch")
    parser.add_argument("--hardware", default=f"cpu{torch.get_num_threads()}", help="its name in that of the report")
    arguments = parser.parse_args()
    theme = "training_step" if arguments.arch == "4 layers" else f"training_step_{arguments.arch}"
    report = Report(f"{theme}_{arguments.hardware}", "One training step on a CPU", __doc__ or "", machine())
    arch = arguments.arch
    for attention_dropout in (0.1, 0.0):
        sides = {
            "fairseq": fairseq_step(arch, attention_dropout),
            "Hugging Face": hugging_face_step(arch, attention_dropout),
            "Hugging Face, masked only": hugging_face_step(arch, attention_dropout, masked_only=True),
            "Hugging Face, masked only, bf16 products": rounding(
                hugging_face_step(arch, attention_dropout, masked_only=True)
            ),
            "ours": our_step(arch, attention_dropout),
            "ours, bf16 products": rounding(our_step(arch, attention_dropout)),
        }
        if arguments.compile:
            name, compiled = "Hugging Face, masked only, compiled", {"masked_only": True, "is_compiled": True}
            sides[name] = hugging_face_step(arch, attention_dropout, **compiled)
            sides[f"{name}, bf16 products"] = rounding(hugging_face_step(arch, attention_dropout, **compiled))
        batches = make_batches(arguments.steps + arguments.warm_up, num_blocks=arguments.batch_size)
        seconds = measure(sides, batches, warm_up=arguments.warm_up)
        report.table(
            f"{arch}, attention dropout {attention_dropout}, {arguments.batch_size} x {LENGTH} tokens",
            seconds,
            baseline="fairseq",
            amount=arguments.batch_size * LENGTH,
            unit="tokens",
        )
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
