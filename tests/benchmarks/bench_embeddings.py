"""Training of embeddings beside sentence-transformers, on one CPU thread.

    python -m tests.benchmarks.bench_embeddings [--write]

Pairs of STS-B by in-batch negatives and by scores. Both sides have models of the same size with random weights (4
layers, dimension 256, 4 heads, 50,265 symbols, dropout 0.1; theirs from `roberta export`). A round is a
number of batches drawn at random from an epoch: making the batch, forward, loss, backward and update are counted. On
their side it is what their trainer does in a step: tokenizing in the collator, their loss and torch's fused AdamW. Their
first row has random batches, the default of their trainer; the second has the batches of ours, examples of similar
length. Sides take turns, round by round.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from roberta_plugin.conversion.convert import ExportSettings, export_model
from roberta_plugin.finetuning.options import CustomOptions
from roberta_plugin.finetuning.preparation import PrepareSettings, prepare
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.models.config import ARCHITECTURES, set_options, sizes
from roberta_plugin.tables import read_table
from tests.benchmarks import bench_finetune
from tests.benchmarks.harness import Report, options
from tests.benchmarks.training_steps import torchs_adamw
from tests.conftest import SHARED_DATA
from tests.hugging_face import import_transformers
from tests.real_data import unpack
from tests.tiny_checkpoints import state_of

LENGTH, SEED = 128, 1
SETS = {"multiple-negatives-ranking": 64, "cosine-similarity": 16}  # loss -> examples of a batch


def prepare_pairs(raw: Path, folder: Path, loss: str) -> Prepared:
    """STS-B's training pairs."""
    scored = {"label_column": ("score",), "score_range": (0.0, 5.0)} if loss == "cosine-similarity" else {}
    table = CustomOptions(
        kind="embedding",
        train="train.tsv",
        valid="dev.tsv",
        text_column="sentence1",
        text_pair_column="sentence2",
        embedding_loss=loss,
        **scored,
    )
    where = {"raw": raw, "tokenizer": SHARED_DATA / "gpt2_bpe", "output_dir": folder / loss, "max_length": LENGTH}
    return prepare(PrepareSettings(task="custom", options=table, **where))


def write_start(folder: Path) -> Path:
    """A checkpoint with random weights."""
    folder.mkdir()
    for path in (SHARED_DATA / "gpt2_bpe").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    dropouts = {"dropout": 0.1, "attention_dropout": 0.1}
    given = Namespace(**sizes(*bench_finetune.SHAPE), **dropouts, max_positions=LENGTH)
    set_options(given, ARCHITECTURES["fast_roberta_base"])
    torch.save(state_of(folder, **vars(given)), folder / "model.pt")
    return folder


def their_step(folder: Path, raw: Path, loss_name: str) -> Callable[[list[int]], float]:
    """A step of sentence-transformers on rows of the training table."""
    import_transformers()
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses

    rows = [row.values for row in read_table(raw / "train.tsv")]
    model = SentenceTransformer(str(folder), device="cpu").train()
    is_scored = loss_name == "cosine-similarity"
    loss_of: Any = losses.CosineSimilarityLoss(model) if is_scored else losses.MultipleNegativesRankingLoss(model)
    optimizer = torchs_adamw(model, lr=bench_finetune.LR, weight_decay=bench_finetune.WEIGHT_DECAY)

    def step(indices: list[int]) -> float:
        chosen = [rows[index] for index in indices]
        features = [model.preprocess([row[name] for row in chosen]) for name in ("sentence1", "sentence2")]
        labels = torch.tensor([float(row["score"]) / 5 for row in chosen]) if is_scored else torch.empty(0)
        optimizer.zero_grad()
        loss = loss_of(features, labels)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="measured rounds a side")
    parser.add_argument("--steps", type=int, default=20, help="batches of a round")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    report = Report("embeddings_cpu1", "Training of embeddings on one CPU thread", __doc__)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        raw = next(path for path in unpack(SHARED_DATA, "glue", folder).rglob("STS-B") if path.is_dir())
        start, theirs = write_start(folder / "start"), folder / "theirs"
        export_model(ExportSettings(checkpoint=start, to="sentence-transformers", output_dir=theirs))
        for loss, batch_size in SETS.items():
            split = prepare_pairs(raw, folder, loss).split("train")
            ours = bench_finetune.our_side(split, batch_size)
            order = np.random.default_rng(SEED).permutation(len(split)).tolist()
            step = their_step(theirs, raw, loss)
            sides = {
                "sentence-transformers": bench_finetune.Side(list(bench_finetune.cut(order, batch_size)), step),
                "sentence-transformers, by length": bench_finetune.Side(ours.batches, step),
                "ours": ours,
            }
            how = {"rounds": arguments.rounds, "steps": arguments.steps, "batch_size": batch_size}
            report.table(
                f"{loss}: {arguments.steps} batches of {batch_size} of {len(split):,} pairs",
                bench_finetune.measure(sides, **how),
                baseline="sentence-transformers",
                amount=arguments.steps * batch_size,
                unit="pairs",
            )
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
