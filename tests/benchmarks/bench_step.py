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

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from tests.benchmarks.harness import Report, options, seconds_of
from tests.benchmarks.training_steps import (
    PAD,
    SHAPES,
    Run,
    Step,
    hugging_face_model,
    make_batch,
    make_step,
    torchs_adamw,
)

LENGTH = 512


def rounding(step: Run) -> Run:
    """The same step, in which torch may make matrix products in bf16."""

    def step_with_rounding(batch: dict[str, Any]) -> None:
        torch.set_float32_matmul_precision("medium")
        try:
            step(batch)
        finally:
            torch.set_float32_matmul_precision("highest")

    return step_with_rounding


def hugging_face_step(step: Step, *, masked_only: bool = False, is_compiled: bool = False) -> Run:
    """Its model with its loss and torch's AdamW; or as fast as it can be made."""
    model = hugging_face_model(step, "RobertaForMaskedLM")
    optimizer = torchs_adamw(model, fused=masked_only or None)
    encode = torch.compile(model.roberta) if is_compiled else model.roberta

    def run(batch: dict[str, Any]) -> None:
        tokens, targets = batch["net_input"]["src_tokens"], batch["target"]
        if masked_only:  # no padding in these batches: no mask needed
            is_predicted = targets.ne(PAD)
            logits = model.lm_head(encode(input_ids=tokens).last_hidden_state[is_predicted])
            loss = torch.nn.functional.cross_entropy(logits, targets[is_predicted])
        else:
            labels = targets.masked_fill(targets.eq(PAD), -100)  # as its masked collator marks what is not predicted
            loss = model(input_ids=tokens, attention_mask=tokens.ne(PAD).long(), labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def measure(sides: dict[str, Run], batches: list[dict[str, Any]], *, warm_up: int) -> dict[str, list[float]]:
    """Seconds of each side's steps, the first `warm_up` ones left out."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number, batch in enumerate(batches):
        for name, step in sides.items():
            torch.manual_seed(number)
            taken = seconds_of(lambda step=step, batch=batch: step(batch))  # type: ignore[misc]
            seconds[name] += [taken] if number >= warm_up else []
    return seconds


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--steps", type=int, default=7, help="measured steps a side")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before them")
    parser.add_argument("--arch", choices=SHAPES, default="4 layers", help="size of the model")
    parser.add_argument("--compile", action="store_true", help="also Hugging Face's compiled, which takes minutes")
    parser.add_argument("--batch-size", type=int, default=8, help="blocks of 512 tokens in a batch")
    parser.add_argument("--hardware", default=f"cpu{torch.get_num_threads()}", help="its name in that of the report")
    arguments = parser.parse_args()
    arch = arguments.arch
    theme = "training_step" if arch == "4 layers" else f"training_step_{arch}"
    report = Report(f"{theme}_{arguments.hardware}", "One training step on a CPU", __doc__)
    for dropout in (0.1, 0.0):
        step = Step(arch=arch, attention_dropout=dropout, batch_size=arguments.batch_size, length=LENGTH)
        step = replace(step, device="cpu", bf16=False, full=True)
        masked_only = "Hugging Face, masked only"
        sides: dict[str, Callable[..., None]] = {
            "fairseq": make_step(replace(step, side="fairseq")),
            "Hugging Face": hugging_face_step(step),
            masked_only: hugging_face_step(step, masked_only=True),
            f"{masked_only}, bf16 products": rounding(hugging_face_step(step, masked_only=True)),
            "ours": make_step(step),
            "ours, bf16 products": rounding(make_step(step)),
        }
        if arguments.compile:
            compiled = {"masked_only": True, "is_compiled": True}
            sides[f"{masked_only}, compiled"] = hugging_face_step(step, **compiled)
            sides[f"{masked_only}, compiled, bf16 products"] = rounding(hugging_face_step(step, **compiled))
        batches = [make_batch(step, number) for number in range(arguments.steps + arguments.warm_up)]
        seconds = measure(sides, batches, warm_up=arguments.warm_up)
        title = f"{arch}, attention dropout {dropout}, {arguments.batch_size} x {LENGTH} tokens"
        report.table(title, seconds, baseline="fairseq", amount=arguments.batch_size * LENGTH, unit="tokens")
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
