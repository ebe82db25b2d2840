"""One step of fine-tuning on short sentences in bf16, of ours, fairseq's or Hugging Face's, for `bench_gpu`.

A classification head on the feature of <s>; batches have one of four widths, multiples of 16, as a loader makes them
that sorts by length and pads to a multiple of 16. Optimizers and precisions are those of `gpu_steps`.

Shapes: B sentences, T positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.benchmarks.gpu_steps import PAD, Step, bf16_optimizer, fairseqs_model, hugging_face_config, on_device
from tests.hugging_face import import_transformers

NUM_CLASSES = 3
WIDTHS = 4


def make_sentences(step: Step, seed: int) -> dict[str, Any]:
    """A batch (B, T), T a quarter of the length or a multiple of it, on the device."""
    rng, count = np.random.default_rng(seed), step.batch_size
    width = step.length // WIDTHS * (1 + seed % WIDTHS)
    lengths = width - rng.integers(0, step.length // WIDTHS, count)
    tokens = rng.integers(4, step.vocab_size - 1, (count, width))
    tokens[:, 0] = 0
    tokens[np.arange(width) >= lengths[:, None]] = PAD
    sizes = {"ntokens": int(lengths.sum()), "npairs": int((lengths**2).sum()), "predicted": {"number": 0}}
    batch = {"src_tokens": tokens, "target": rng.integers(0, NUM_CLASSES, count)}
    found: dict[str, Any] = {**on_device(step.device, batch), **sizes, "has_padding": bool(lengths.min() < width)}
    return found


def make_step(step: Step) -> Callable[[dict[str, Any]], None]:
    """Forward, backward and update of one batch."""
    return _hugging_faces_step(step) if step.side == "Hugging Face" else _fairseqs_step(step)


def _fairseqs_step(step: Step) -> Callable[[dict[str, Any]], None]:
    model = fairseqs_model(step)
    model.register_classification_head("task", num_classes=NUM_CLASSES)
    model = model.to(torch.bfloat16).to(step.device).train()
    optimizer = bf16_optimizer("adam" if step.side == "fairseq" else step.optimizer, list(model.parameters()))

    def run(batch: dict[str, Any]) -> None:
        optimizer.zero_grad()
        inputs = {"src_tokens": batch["src_tokens"]} | (
            {"features_only": True} if step.side == "fairseq" else {"has_padding": batch["has_padding"]}
        )
        logits = model(**inputs, classification_head_name="task")[0]
        loss = F.nll_loss(F.log_softmax(logits, dim=-1, dtype=torch.float32), batch["target"], reduction="sum")
        optimizer.backward(loss)
        optimizer.multiply_grads(1 / step.batch_size)
        optimizer.clip_grad_norm(0.0)
        optimizer.step()

    return run


def _hugging_faces_step(step: Step) -> Callable[[dict[str, Any]], None]:
    """Compiled: with CUDA graphs, which torch.compile calls "reduce-overhead"."""
    model = import_transformers().RobertaForSequenceClassification(hugging_face_config(step, num_labels=NUM_CLASSES))
    model = model.to(step.device).train()
    settings = {"lr": 1e-4, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.01}
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, **settings)
    classify = torch.compile(model, mode="reduce-overhead") if step.compiled else model

    def run(batch: dict[str, Any]) -> None:
        optimizer.zero_grad()
        tokens = batch["src_tokens"]
        if step.compiled:
            torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(torch.device(step.device).type, torch.bfloat16):
            logits = classify(input_ids=tokens, attention_mask=tokens.ne(PAD).long()).logits
        F.cross_entropy(logits.float(), batch["target"]).backward()
        optimizer.step()

    return run
