"""One training step in bf16, of ours, fairseq's or Hugging Face's, for `bench_gpu`: speed, memory, FLOPs.

Every side trains the same model on the same blocks, FULL-SENTENCES of nearly full length, with fp32 masters or weights:

    ours           `fast_roberta` with fairseq's --bf16 wrapper and roberta_adamw
    fairseq        its `roberta` with the same wrapper and its own Adam
    Hugging Face   RobertaForMaskedLM under bf16 autocast with SDPA, the LM head on the predicted positions alone, and
                   torch's fused AdamW

Shapes: B blocks, T positions.
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
from fairseq.criterions.masked_lm import MaskedLmLoss
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.model import base_architecture
from fairseq.optim import FP16Optimizer
from fairseq.optim.adam import FairseqAdamConfig
from omegaconf import OmegaConf

from roberta_plugin.criterions.masked_lm import RobertaMaskedLMCriterion
from roberta_plugin.data.batches import PREDICTED_MULTIPLE, pack
from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.models.config import SIZES
from roberta_plugin.models.flops import executed_flops, half_precision_peak, training_flops
from roberta_plugin.models.roberta import FastRobertaModel
from roberta_plugin.optim.adamw import RobertaAdamWConfig
from tests.hugging_face import import_transformers
from tests.tiny_models import TinyTask

PAD = 1


@dataclass(frozen=True, kw_only=True)
class Step:
    """What is measured.

    Attributes:
        task: "masked_lm", or "classification" of short sentences.
        side: "ours", "fairseq" or "Hugging Face".
        length: of the blocks, or of the longest sentences.
    """

    task: str = "masked_lm"
    side: str = "ours"
    arch: str = "base"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    batch_size: int = 64
    length: int = 512
    vocab_size: int = 50265
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
    lengths = step.length - rng.integers(0, max(step.length // 16, 1), count)
    tokens = rng.integers(4, vocab_size - 1, (count, step.length))
    tokens[:, 0] = 0
    tokens[np.arange(step.length) >= lengths[:, None]] = PAD
    special = np.isin(np.arange(vocab_size), [0, 1, 2, 3, vocab_size - 1])
    masker = Masker(MaskingRecipe(), mask_id=vocab_size - 1, pad_id=PAD, never_masked=special, never_drawn=special)
    masked = masker.mask(tokens, seed=seed, passes=np.ones(count, dtype=np.int64), indices=np.arange(count))
    sizes = {"ntokens": int(lengths.sum()), "npairs": int((lengths**2).sum()), "nsentences": count}
    if step.packed:
        row = pack(masked, lengths, pad_id=PAD, multiple=count * step.length, max_seqlen=step.length)
        packing = {"positions": row.positions, "cu_seqlens": row.cu_seqlens, "max_seqlen": step.length}
        net_input, target = {"src_tokens": row.tokens, "packing": packing}, row.targets
        predicted = {"positions": row.predicted, "labels": row.labels, "cu_seqlens": row.cu_seqlens_q}
        predicted |= {"max_seqlen": step.length + PREDICTED_MULTIPLE}
    else:
        net_input, target = (
            {"src_tokens": masked.tokens, "has_padding": bool(lengths.min() < step.length)},
            masked.targets,
        )
        predicted = {"positions": masked.positions, "labels": masked.labels}
    predicted["number"] = masked.num_predicted
    net_input["src_lengths"] = lengths
    batch: dict[str, Any] = on_device(
        step.device, {"net_input": net_input, "target": target, "predicted": predicted, **sizes}
    )
    return batch


def on_device(device: str, value: Any) -> Any:
    """Arrays in nested dictionaries as tensors on a device."""
    if isinstance(value, dict):
        return {name: on_device(device, entry) for name, entry in value.items()}
    return torch.from_numpy(value).to(device) if isinstance(value, np.ndarray) else value


def bf16_optimizer(name: str, params: list[torch.nn.Parameter]) -> Any:
    """fairseq's wrapper for --bf16 around an optimizer."""
    cfg = OmegaConf.structured(FairseqConfig)
    OmegaConf.set_struct(cfg, False)
    cfg.common.bf16 = True
    settings = OmegaConf.structured(FairseqAdamConfig if name == "adam" else RobertaAdamWConfig)
    OmegaConf.set_struct(settings, False)
    values = {"_name": name, "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-6, "weight_decay": 0.01, "lr": [1e-4]}
    cfg.optimizer = OmegaConf.merge(settings, {**values, **({"tpu": False} if name == "adam" else {})})
    return FP16Optimizer.build_optimizer(cfg, params)


def _options(step: Step) -> Namespace:
    layers, dim, ffn_dim, heads = SIZES[step.arch]
    sizes = {"encoder_layers": layers, "encoder_embed_dim": dim, "encoder_ffn_embed_dim": ffn_dim}
    return Namespace(
        **sizes,
        encoder_attention_heads=heads,
        max_positions=step.length,
        dropout=step.dropout,
        attention_dropout=step.attention_dropout,
        activation_dropout=0.0,
        compile_layers=step.compiled,
        attention_backend=step.backend,
    )


def fairseqs_model(step: Step) -> Any:
    """Ours, or fairseq's own."""
    task, options = TinyTask(step.vocab_size - 5, step.length), _options(step)
    if step.side == "fairseq":
        base_architecture(options)
        return RobertaModel.build_model(options, task)
    return FastRobertaModel.build_model(options, task)


def _fairseqs_step(step: Step) -> Callable[[dict[str, Any]], None]:
    """Ours or fairseq's: model, criterion and optimizer as fairseq's trainer drives them."""
    task = TinyTask(step.vocab_size - 5, step.length)
    is_fairseqs = step.side == "fairseq"
    criterion = MaskedLmLoss(Namespace(tpu=False), task) if is_fairseqs else RobertaMaskedLMCriterion(task)
    model = fairseqs_model(step).to(torch.bfloat16).to(step.device).train()
    optimizer = bf16_optimizer("adam" if step.side == "fairseq" else step.optimizer, list(model.parameters()))

    def run(batch: dict[str, Any]) -> None:
        optimizer.zero_grad()
        loss, sample_size, _ = criterion(model, batch)
        optimizer.backward(loss)
        optimizer.multiply_grads(1 / sample_size)
        optimizer.clip_grad_norm(0.0)
        optimizer.step()

    return run


def hugging_face_config(step: Step, **others: Any) -> Any:
    """Its RobertaConfig of the same sizes and dropouts, with SDPA."""
    layers, dim, ffn_dim, heads = SIZES[step.arch]
    return import_transformers().RobertaConfig(
        vocab_size=step.vocab_size,
        hidden_size=dim,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=ffn_dim,
        max_position_embeddings=step.length + 2,
        type_vocab_size=1,
        hidden_dropout_prob=step.dropout,
        attention_probs_dropout_prob=step.attention_dropout,
        attn_implementation="sdpa",
        **others,
    )


def _hugging_faces_step(step: Step) -> Callable[[dict[str, Any]], None]:
    model = import_transformers().RobertaForMaskedLM(hugging_face_config(step)).to(step.device).train()
    settings = {"lr": 1e-4, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.01}
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, **settings)
    encode = torch.compile(model.roberta) if step.compiled else model.roberta

    def run(batch: dict[str, Any]) -> None:
        optimizer.zero_grad()
        tokens, predicted = batch["net_input"]["src_tokens"], batch["predicted"]
        with torch.autocast(torch.device(step.device).type, torch.bfloat16):
            features = encode(input_ids=tokens, attention_mask=tokens.ne(PAD).long()).last_hidden_state
            positions = predicted["positions"][..., None].expand(-1, -1, features.size(-1))
            logits = model.lm_head(features.gather(1, positions))
        labels = predicted["labels"].masked_fill(predicted["labels"].eq(PAD), -100)
        torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten()).backward()
        optimizer.step()

    return run


def make_step(step: Step) -> Callable[[dict[str, Any]], None]:
    """Forward, backward and update of one batch."""
    return _hugging_faces_step(step) if step.side == "Hugging Face" else _fairseqs_step(step)


def measure(
    step: Step, make_batch: Callable[[Step, int], dict[str, Any]], make_step: Callable[[Step], Callable[..., None]]
) -> dict[str, Any]:
    """Tokens a second, milliseconds a step, MFU and HFU in percent (None where the peak is unknown), memory in GiB."""
    is_gpu = step.device.startswith("cuda")
    torch.manual_seed(1)
    batches = [make_batch(step, seed) for seed in range(4)]
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
    layers, dim, ffn_dim, _ = SIZES[step.arch]
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
