"""Hugging Face's masked-LM training as `bench_training` runs it: RobertaForMaskedLM with its masked collator.

    python -m tests.benchmarks.hugging_face_training DATA --arch base --bf16 [--compile]

The blocks are those that our task cuts of the same data-bin, in random order; attention is torch's SDPA, the optimizer
torch's fused AdamW, bf16 autocast keeps the weights in fp32. Prints a line of JSON for every few updates, like
fairseq's log.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from roberta_plugin.data.blocks import make_blocks
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.models.config import SIZES
from tests.hugging_face import import_transformers

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]


def make_tokenizer(transformers: Any, num_symbols: int) -> Any:
    """A tokenizer that the collator can ask for the ids of special symbols."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    symbols = [*SPECIALS, *(f"w{number}" for number in range(num_symbols - len(SPECIALS) - 1)), "<mask>"]
    words = Tokenizer(WordLevel({symbol: number for number, symbol in enumerate(symbols)}, unk_token="<unk>"))
    names = {
        "bos_token": "<s>",
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, **names)


def blocks_of(data: Path, length: int) -> list[dict[str, list[int]]]:
    """The blocks of FULL-SENTENCES, <s> first, in random order."""
    tokens = MmapTokens(data / "train")
    blocks = make_blocks(tokens.sizes, block_length=length - 1, break_mode="complete")
    starts, lengths = blocks.bounds(np.random.default_rng(1).permutation(len(blocks)))
    return [
        {"input_ids": [0, *tokens.tokens[start : start + size].tolist()]}
        for start, size in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--arch", choices=SIZES, required=True)
    parser.add_argument("--num-symbols", type=int, required=True, help="size of the vocabulary")
    parser.add_argument("--tokens-per-sample", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--attention-dropout", type=float, default=0.1)
    parser.add_argument("--updates", type=int, required=True)
    parser.add_argument("--interval", type=int, default=5)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    arguments = parser.parse_args()

    transformers = import_transformers()
    device = torch.device("cpu" if arguments.cpu else "cuda")
    layers, dim, ffn_dim, heads = SIZES[arguments.arch]
    config = transformers.RobertaConfig(
        vocab_size=arguments.num_symbols,
        hidden_size=dim,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=ffn_dim,
        max_position_embeddings=arguments.tokens_per_sample + 2,
        type_vocab_size=1,
        attention_probs_dropout_prob=arguments.attention_dropout,
        attn_implementation="sdpa",
    )
    model = transformers.RobertaForMaskedLM(config).to(device).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01, fused=True
    )
    collator = transformers.DataCollatorForLanguageModeling(
        make_tokenizer(transformers, arguments.num_symbols), mlm_probability=0.15
    )
    loader = torch.utils.data.DataLoader(
        blocks_of(arguments.data, arguments.tokens_per_sample),
        batch_size=arguments.batch_size,
        collate_fn=collator,
        num_workers=1,
        pin_memory=not arguments.cpu,
        drop_last=True,
    )
    forward = torch.compile(model) if arguments.compile else model
    num_tokens, start = 0, time.perf_counter()
    for number, batch in enumerate(loader, start=1):
        num_tokens += int(batch["attention_mask"].sum())
        batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=arguments.bf16):
            loss = forward(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % arguments.interval == 0:
            bits = loss.item() / np.log(2)  # waits for the device
            gigabytes = 0.0 if arguments.cpu else torch.cuda.max_memory_allocated() / 2**30
            speed = num_tokens / (time.perf_counter() - start)
            print(
                json.dumps(
                    {
                        "num_updates": number,
                        "wps": speed,
                        "loss": f"{bits:.3f}",
                        "cuda_gb_allocated": f"{gigabytes:.1f}",
                    }
                ),
                flush=True,
            )
            num_tokens, start = 0, time.perf_counter()
        if number == arguments.updates:
            return
    raise SystemExit("The data have too few blocks for so many updates.")


if __name__ == "__main__":
    main()
