"""A training step of ours, fairseq's or Hugging Face's, for `bench_step`, `bench_gpu` and `bench_finetune`.

Every side trains the same model on the same blocks, FULL-SENTENCES of nearly full length. In bf16 the weights or their
masters are in fp32:

    ours           `fast_roberta` with fairseq's --bf16 wrapper and roberta_adamw
    fairseq        its `roberta` with the same wrapper and its own Adam
    Hugging Face   RobertaForMaskedLM under bf16 autocast with SDPA, the LM head on the predicted positions alone, and
                   torch's fused AdamW

A classification has a head on the feature of <s>, and batches of one of four widths, multiples of 16, as a loader makes
them that sorts by length and pads to a multiple of 16.

Shapes: B blocks or sentences, T positions.
"""

from __future__ import annotations

import statistics
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.criterions.masked_lm import MaskedLmLoss
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.model import base_architecture
from fairseq.optim import FP16Optimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from omegaconf import OmegaConf

from roberta_plugin.criterions.masked_lm import RobertaMaskedLMCriterion
from roberta_plugin.data.batches import Rounding, pack
from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.models.config import MODERNBERT, SIZES, sizes
from roberta_plugin.models.flops import executed_flops, half_precision_peak, training_flops
from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.optim.adamw import RobertaAdamW, RobertaAdamWConfig
from tests.hugging_face import import_transformers
from tests.tiny_models import TinyTask

PAD, LR = 1, 1e-4
NUM_CLASSES, WIDTHS = 3, 4
SHAPES = {"4 layers": (4, 256, 1024, 4), **SIZES}
Run = Callable[[dict[str, Any]], None]
"""A step on a batch."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What is measured.

    Attributes:
        task: "masked_lm", or "classification" of short sentences.
        side: "ours", "fairseq" or "Hugging Face".
        length: of the blocks, or of the longest sentences.
        full: the blocks have no padding.
        modern: the layers are ModernBERT's, with rotary positions and local windows.
        fp8: products of all layers but the last are in fp8.
        bf16: if not, fp32, without fairseq's wrapper.
    """

    task: str = "masked_lm"
    side: str = "ours"
    arch: str = "base"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    batch_size: int = 64
    length: int = 512
    vocab_size: int = 50265
    full: bool = False
    modern: bool = False
    fp8: bool = False
    bf16: bool = True
    packed: bool = False
    compiled: bool = False
    backend: str = "auto"
    optimizer: str = "roberta_adamw"
    device: str = "cuda"
    steps: int = 10
    warm_up: int = 4


def make_batch(step: Step, seed: int) -> dict[str, Any]:
    """A batch as our loader makes it, on the device."""
    rng = np.random.default_rng(seed)
    vocab_size, count = step.vocab_size, step.batch_size
    lengths = step.length - rng.integers(0, 1 if step.full else max(step.length // 16, 1), count)
    tokens = rng.integers(4, vocab_size - 1, (count, step.length))
    tokens[:, 0] = 0
    tokens[np.arange(step.length) >= lengths[:, None]] = PAD
    special = np.isin(np.arange(vocab_size), [0, 1, 2, 3, vocab_size - 1])
    masker = Masker(MaskingRecipe(), mask_id=vocab_size - 1, pad_id=PAD, never_masked=special, never_drawn=special)
    masked = masker.mask(tokens, seed=seed, passes=np.ones(count, dtype=np.int64), indices=np.arange(count))
    counts = {"ntokens": int(lengths.sum()), "npairs": int((lengths**2).sum()), "nsentences": count}
    if step.packed:
        row = pack(masked, lengths, pad_id=PAD, multiple=count * step.length, max_seqlen=step.length)
        packing = {"positions": row.positions, "cu_seqlens": row.cu_seqlens, "max_seqlen": step.length}
        net_input, target = {"src_tokens": row.tokens, "packing": packing}, row.targets
        predicted = {"positions": row.predicted, "labels": row.labels, "cu_seqlens": row.cu_seqlens_q}
        predicted |= {"max_seqlen": step.length + Rounding.of(count * step.length).predicted}
    else:
        net_input, target = (
            {"src_tokens": masked.tokens, "has_padding": bool(lengths.min() < step.length)},
            masked.targets,
        )
        predicted = {"positions": masked.positions, "labels": masked.labels}
    predicted["number"] = masked.num_predicted
    net_input["src_lengths"] = lengths
    batch: dict[str, Any] = on_device(
        step.device, {"net_input": net_input, "target": target, "predicted": predicted, **counts}
    )
    return batch


def on_device(device: str, value: Any) -> Any:
    """Arrays in nested dictionaries as tensors on a device."""
    if isinstance(value, dict):
        return {name: on_device(device, entry) for name, entry in value.items()}
    return torch.from_numpy(value).to(device) if isinstance(value, np.ndarray) else value


def _optimizer(step: Step, params: list[torch.nn.Parameter]) -> Any:
    """Ours or fairseq's Adam, in bf16 inside fairseq's wrapper."""
    is_fairseqs = step.side == "fairseq" or step.optimizer == "adam"
    settings = OmegaConf.structured(FairseqAdamConfig if is_fairseqs else RobertaAdamWConfig)
    OmegaConf.set_struct(settings, False)
    values = {"adam_betas": "(0.9, 0.98)", "adam_eps": 1e-6, "weight_decay": 0.01, "lr": [LR]}
    settings = OmegaConf.merge(settings, values, {"tpu": False} if is_fairseqs else {})
    if not step.bf16:
        return (FairseqAdam if is_fairseqs else RobertaAdamW)(settings, params)
    cfg = OmegaConf.structured(FairseqConfig)
    OmegaConf.set_struct(cfg, False)
    cfg.common.bf16 = True
    cfg.optimizer = OmegaConf.merge(settings, {"_name": "adam" if is_fairseqs else "roberta_adamw"})
    return FP16Optimizer.build_optimizer(cfg, params)


def fairseqs_model(step: Step) -> Any:
    """Ours, or fairseq's own."""
    task = TinyTask(step.vocab_size - 5, step.length)
    options = Namespace(
        **sizes(*SHAPES[step.arch]),
        max_positions=step.length,
        dropout=step.dropout,
        attention_dropout=step.attention_dropout,
        activation_dropout=0.0,
        compile_layers=step.compiled,
        attention_backend=step.backend,
        fp8_products=step.fp8,
    )
    if step.modern:
        vars(options).update({name: value for name, value in MODERNBERT.items() if "dropout" not in name})
    if step.side == "fairseq":
        base_architecture(options)
        return RobertaModel.build_model(options, task)
    return FastRobertaModel.build_model(options, task)


def step_of_model(step: Step, model: Any) -> Run:
    """Ours or fairseq's, on the device: with criterion and optimizer as fairseq's trainer drives them."""
    is_fairseqs = step.side == "fairseq"
    if step.task == "classification":
        model.register_classification_head("task", num_classes=NUM_CLASSES)

        def loss_of(batch: dict[str, Any]) -> tuple[Any, int]:
            how = {"features_only": True} if is_fairseqs else {"has_padding": batch["has_padding"]}
            logits = model(src_tokens=batch["src_tokens"], **how, classification_head_name="task")[0]
            scores = F.log_softmax(logits, dim=-1, dtype=torch.float32)
            return F.nll_loss(scores, batch["target"], reduction="sum"), step.batch_size

    else:
        task = TinyTask(step.vocab_size - 5, step.length)
        criterion = MaskedLmLoss(Namespace(tpu=False), task) if is_fairseqs else RobertaMaskedLMCriterion(task)

        def loss_of(batch: dict[str, Any]) -> tuple[Any, int]:
            loss, sample_size, _ = criterion(model, batch)
            return loss, sample_size

    model.train()
    optimizer = _optimizer(step, list(model.parameters()))
    optimizer.zero_grad()  # before the first backward, as fairseq's wrapper expects

    def run(batch: dict[str, Any]) -> None:
        loss, sample_size = loss_of(batch)
        optimizer.backward(loss)
        optimizer.multiply_grads(1 / sample_size)
        if step.bf16:
            optimizer.clip_grad_norm(0.0)
        optimizer.step()
        optimizer.zero_grad()  # here, because all sides' models share the memory

    return run


def hugging_face_config(shape: tuple[int, int, int, int], *, vocab_size: int, length: int, **others: Any) -> Any:
    """Its RobertaConfig of these layers, dimensions and heads, with SDPA."""
    layers, dim, ffn_dim, heads = shape
    return import_transformers().RobertaConfig(
        vocab_size=vocab_size,
        hidden_size=dim,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=ffn_dim,
        max_position_embeddings=length + 2,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        attn_implementation="sdpa",
        **others,
    )


def hugging_face_model(step: Step, kind: str, **others: Any) -> Any:
    """Its model of this class, in training on the device."""
    dropouts = {"hidden_dropout_prob": step.dropout, "attention_probs_dropout_prob": step.attention_dropout}
    sizes = {"vocab_size": step.vocab_size, "length": step.length}
    config = hugging_face_config(SHAPES[step.arch], **sizes, **dropouts, **others)
    return getattr(import_transformers(), kind)(config).to(step.device).train()


def torchs_adamw(
    model: torch.nn.Module, *, lr: float = LR, weight_decay: float = 0.01, fused: bool | None = True
) -> torch.optim.Optimizer:
    """torch's AdamW with the paper's settings."""
    return torch.optim.AdamW(
        model.parameters(), lr=lr, betas=(0.9, 0.98), eps=1e-6, weight_decay=weight_decay, fused=fused
    )


def _hugging_faces_step(step: Step) -> Run:
    """A compiled classification has CUDA graphs, which torch.compile calls "reduce-overhead"."""
    if step.task == "classification":
        model = hugging_face_model(step, "RobertaForSequenceClassification", num_labels=NUM_CLASSES)
        classify = torch.compile(model, mode="reduce-overhead") if step.compiled else model
    else:
        model = hugging_face_model(step, "RobertaForMaskedLM")
        encode = torch.compile(model.roberta) if step.compiled else model.roberta
    optimizer = torchs_adamw(model)

    def loss_of_classes(batch: dict[str, Any]) -> torch.Tensor:
        tokens = batch["src_tokens"]
        if step.compiled:
            torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(torch.device(step.device).type, torch.bfloat16):
            logits = classify(input_ids=tokens, attention_mask=tokens.ne(PAD).long()).logits
        return F.cross_entropy(logits.float(), batch["target"])

    def loss_of_masks(batch: dict[str, Any]) -> torch.Tensor:
        tokens, predicted = batch["net_input"]["src_tokens"], batch["predicted"]
        with torch.autocast(torch.device(step.device).type, torch.bfloat16):
            features = encode(input_ids=tokens, attention_mask=tokens.ne(PAD).long()).last_hidden_state
            positions = predicted["positions"][..., None].expand(-1, -1, features.size(-1))
            logits = model.lm_head(features.gather(1, positions))
        labels = predicted["labels"].masked_fill(predicted["labels"].eq(PAD), -100)
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())

    loss_of = loss_of_classes if step.task == "classification" else loss_of_masks

    def run(batch: dict[str, Any]) -> None:
        loss_of(batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def make_step(step: Step) -> Run:
    """Forward, backward and update of one batch."""
    if step.side == "Hugging Face":
        return _hugging_faces_step(step)
    model = fairseqs_model(step).to(torch.bfloat16 if step.bf16 else torch.float32)
    return step_of_model(step, model.to(step.device))


def make_sentences(step: Step, seed: int) -> dict[str, Any]:
    """A batch of a classification (B, T), T a quarter of the length or a multiple of it, on the device."""
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


def measure(step: Step) -> dict[str, Any]:
    """Tokens a second, milliseconds a step, MFU and HFU in percent (None where the peak is unknown), memory in GiB."""
    is_gpu = step.device.startswith("cuda")
    torch.manual_seed(1)
    make = make_sentences if step.task == "classification" else make_batch
    batches = [make(step, seed) for seed in range(4)]
    run = make_step(step)
    seconds = []
    for number in range(step.warm_up + step.steps):
        if is_gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        run(batches[number % len(batches)])
        if is_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    measured = list(enumerate(seconds))[step.warm_up :]
    of_batch = [
        [taken for number, taken in measured if number % len(batches) == batch] for batch in range(len(batches))
    ]
    second = statistics.fmean(statistics.median(taken) for taken in of_batch if taken)  # batches may differ in size
    mean = {name: sum(batch[name] for batch in batches) / len(batches) for name in ("ntokens", "npairs")}
    layers, dim, ffn_dim, _ = SHAPES[step.arch]
    sizes = {"num_layers": layers, "dim": dim, "ffn_dim": ffn_dim, "vocab_size": step.vocab_size}
    counts = {"num_tokens": mean["ntokens"], "num_pairs": mean["npairs"]}
    counts["num_predicted"] = sum(batch["predicted"]["number"] for batch in batches) / len(batches)
    peak = half_precision_peak(torch.cuda.get_device_name()) if is_gpu else 0.0

    def share(flops: Callable[..., float]) -> float | None:
        return 100 * flops(**sizes, **counts) / second / peak if peak else None

    return {
        "tokens_per_second": mean["ntokens"] / second,
        "milliseconds": 1e3 * second,
        "spread": [1e3 * min(seconds[step.warm_up :]), 1e3 * max(seconds[step.warm_up :])],
        "mfu": share(training_flops),
        "hfu": share(executed_flops) if step.side == "ours" else None,
        "gib": torch.cuda.max_memory_allocated() / 2**30 if is_gpu else None,
    }
