"""What does Hugging Face's Trainer learn in the time of one of our recipes?

    OMP_NUM_THREADS=1 python -m tests.benchmarks.bench_learning DATA-BIN runs/half-hour/checkpoints/checkpoint_last.pt --minutes 28

A RobertaForMaskedLM of the checkpoint's sizes learns on the same text for so many minutes of processor time, by the
defaults of transformers' example run_mlm.py and of its TrainingArguments: 8 blocks of 512 tokens a batch, 15 % masked,
AdamW, 5e-5 falling to 0, dropout 0.1, fp32. `--learning-rate` and `--block` change two of them. Both models then predict the
same masked tokens, 15 % of the validation split in blocks of 64, beside counts of the training text.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from roberta_plugin.data.block_tables import open_blocks
from roberta_plugin.data.count_baselines import baselines_of
from roberta_plugin.data.dynamic_masking import Masker, MaskingRecipe
from roberta_plugin.data.masked_lm_dataset import MaskedLMDataset, SplitFile
from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.hub.interface import from_pretrained
from roberta_plugin.tasks.block_task import load_vocabulary
from tests.benchmarks.harness import Report, options
from tests.hugging_face import import_transformers

STEPS_TO_MEASURE = 20
EVALUATION_BLOCKS = 1600
EVALUATION_BLOCK = 64  # tokens


SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")


def make_tokenizer(transformers: Any, num_symbols: int) -> Any:
    """A tokenizer that the collator can ask for the ids of special symbols."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    symbols = [*SPECIALS, *(f"w{number}" for number in range(num_symbols - len(SPECIALS) - 1)), "<mask>"]
    words = Tokenizer(WordLevel({symbol: number for number, symbol in enumerate(symbols)}, unk_token="<unk>"))
    names = {f"{name}_token": symbol for name, symbol in zip(("bos", "pad", "eos", "unk"), SPECIALS, strict=True)}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, **names, mask_token="<mask>")


def chunks(data: Path, length: int) -> list[dict[str, list[int]]]:
    """The training text end to end, cut every `length` - 2 tokens, with <s> and </s>."""
    tokens = MmapTokens(data / "train").tokens
    starts = range(0, len(tokens) - length + 2, length - 2)
    return [{"input_ids": [0, *tokens[start : start + length - 2].tolist(), 2]} for start in starts]


def train(model: Any, blocks: list[dict[str, list[int]]], learning_rate: float, *, steps: int) -> None:
    """`steps` steps of the Trainer."""
    transformers = import_transformers()
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            learning_rate=learning_rate,
            use_cpu=True,
            save_strategy="no",
            report_to=[],
            logging_steps=100,
            disable_tqdm=True,
            seed=1,
        )
        tokenizer = make_tokenizer(transformers, model.config.vocab_size)
        collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
        transformers.Trainer(model=model, args=arguments, train_dataset=blocks, data_collator=collator).train()


def trained(ours: Any, data: Path, asked: argparse.Namespace) -> tuple[Any, int, float]:
    """A model of the Trainer's, its steps, and the minutes of processor time that they took."""
    transformers = import_transformers()
    sizes = ours.model.cfg
    torch.manual_seed(1)
    model = transformers.RobertaForMaskedLM(
        transformers.RobertaConfig(
            vocab_size=ours.model.encoder.sentence_encoder.embed_tokens.num_embeddings,
            hidden_size=sizes.encoder_embed_dim,
            num_hidden_layers=sizes.encoder_layers,
            num_attention_heads=sizes.encoder_attention_heads,
            intermediate_size=sizes.encoder_ffn_embed_dim,
            max_position_embeddings=max(asked.block, EVALUATION_BLOCK) + 2,
            type_vocab_size=1,
        )
    )
    blocks = chunks(data, asked.block)
    untrained = {name: value.clone() for name, value in model.state_dict().items()}
    start = time.process_time()
    train(model, blocks, asked.learning_rate, steps=STEPS_TO_MEASURE)
    steps = max(1, round(STEPS_TO_MEASURE * asked.minutes * 60 / (time.process_time() - start)))
    model.load_state_dict(untrained)
    start = time.process_time()
    train(model, blocks, asked.learning_rate, steps=steps)
    return model.eval(), steps, (time.process_time() - start) / 60


@torch.no_grad()
def perplexity(predict: Any, data: Path) -> float:
    """Perplexity of 15 % of the held-out tokens; `predict` maps ids (B, T) to logits (B, T, V)."""
    _, vocabulary = load_vocabulary(data)
    tokens = MmapTokens(data / "valid")
    blocks = open_blocks(tokens, block_length=EVALUATION_BLOCK - 1, break_mode="complete")
    masker = Masker.for_vocabulary(vocabulary, MaskingRecipe())
    ids = {"bos_id": vocabulary.bos_id, "pad_id": vocabulary.pad_id, "vocab_size": len(vocabulary)}
    dataset = MaskedLMDataset([SplitFile(tokens, blocks)], masker, seed=1, **ids)
    chosen = np.unique(np.linspace(0, len(dataset) - 1, EVALUATION_BLOCKS).astype(np.int64))
    total, number = 0.0, 0
    for part in np.array_split(chosen, len(chosen) // 32):
        batch = dataset.make_batch(np.ones(len(part), dtype=np.int64), part)
        inputs = torch.from_numpy(batch["net_input"]["src_tokens"].astype(np.int64))  # (B, T)
        targets = torch.from_numpy(batch["target"].astype(np.int64))  # (B, T)
        is_predicted = targets.ne(vocabulary.pad_id)
        scores = predict(inputs)[is_predicted].float().log_softmax(dim=-1)  # (M, V)
        total += float(scores.gather(1, targets[is_predicted][:, None]).double().sum())
        number += int(is_predicted.sum())
    return math.exp(-total / number)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("data", type=Path, help="the data-bin that the checkpoint was trained on")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--minutes", type=float, required=True, help="processor time for the Trainer")
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--block", type=int, default=512, help="tokens in a block")
    asked = parser.parse_args()

    ours = from_pretrained(asked.checkpoint.parent, asked.checkpoint.name, data_name_or_path=str(asked.data))
    ours.eval()
    found = baselines_of([asked.data / "train"], {"": [asked.data / "valid"]})[""]
    assert found is not None
    rows = {
        "counts of words": 2**found.unigram,
        "counts of words and their left neighbors": 2**found.bigram,
        "counts of words and both neighbors, none of them masked": 2**found.neighbors.both.loss,
    }
    rows["ours"] = perplexity(lambda inputs: ours.model(inputs)[0], asked.data)
    model, steps, minutes = trained(ours, asked.data, asked)
    rows["Trainer"] = perplexity(lambda inputs: model(inputs, attention_mask=inputs.ne(1)).logits, asked.data)

    report = Report("learning_cpu1", "What Hugging Face's Trainer learns in the same time", __doc__)
    shown = [(name, f"{value:,.1f}") for name, value in rows.items()]
    report.rows(("model", "held-out perplexity"), shown, texts=1)
    report.text(f"The Trainer made {steps:,} steps in {minutes:.1f} minutes of processor time.")
    report.show(write=asked.write)


if __name__ == "__main__":
    main()
