"""Fine-tuning on real data: our data set, task, criterion and model beside Hugging Face's, on one CPU thread.

    python -m tests.benchmarks.bench_finetune [--write]

Both train a model of the same size (4 layers, dimension 256, 4 heads, 50,265 symbols, dropout 0.1) from random weights
on the same token ids with batches of the same size and AdamW. A round is a number of batches drawn at random from an
epoch: batch making, forward, backward and update are counted. Sides take turns, round by round. Hugging Face's first
row has the random batches that its Trainer makes by default, the second its LengthGroupedSampler (Trainer's
train_sampling_strategy "group_by_length"; for RACE it is told the length of the longest option, which it would not find
out by itself). Hugging Face has no class for extractive summaries: its side is its encoder with a linear layer on the
features of each <s>, and ours has no layers over sentences. Padding is the share of positions that are padding over all
batches of the epoch.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.benchmarks import benchmark_of, kind_of, options_for
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit
from roberta_plugin.models.config import sizes
from roberta_plugin.optim.adamw import RobertaAdamW, RobertaAdamWConfig
from tests.benchmarks.harness import Report, options, seconds_of
from tests.benchmarks.training_steps import hugging_face_config, torchs_adamw
from tests.conftest import SHARED_DATA
from tests.hugging_face import import_transformers
from tests.real_data import unpack

SHAPE, LENGTH = (4, 256, 1024, 4), 512
LR, WEIGHT_DECAY, SEED = 1e-5, 0.1, 1


class Data(NamedTuple):
    """A set, where it lies in its archive, and how it is measured."""

    archive: str
    folder: str
    split: str
    batch_size: int
    steps: int  # of a round


SETS = {
    "SST-2": Data("glue", "SST-2", "train", 16, 40),
    "RTE": Data("glue", "RTE", "train", 16, 24),
    "MNLI": Data("glue", "MNLI", "train", 16, 32),
    "race": Data("race", "RACE", "valid", 4, 6),
    "wnut17": Data("ner", "wnut17", "train", 16, 40),
    "summaries": Data("summaries", "bbc_news_summary.dev.jsonl.xz", "valid", 4, 6),
}


class Side(NamedTuple):
    """One way to train: the batches of an epoch, as indices of examples, and a step on one of them."""

    batches: list[list[int]]
    step: Callable[[list[int]], float]


def prepare(task: str, folder: Path) -> PreparedSplit:
    """Unpack and prepare a set with the GPT-2 tokenizer and fairseq's dictionary."""
    data = SETS[task]
    given: dict[str, str] = {}
    if task == "summaries":  # a folder of files, not an archive
        raw, given = SHARED_DATA / data.archive, {data.split: data.folder}
    else:
        raw = next(path for path in unpack(SHARED_DATA, data.archive, folder).rglob(data.folder) if path.is_dir())
    bpe = SHARED_DATA / "gpt2_bpe"
    tools = {"tokenizer": load_tokenizer(bpe), "vocabulary": Vocabulary.load(bpe / "dict.txt")}
    how = {"max_length": LENGTH, "options": options_for(task, given)}
    benchmark_of(task).prepare(raw, folder / "prepared", **tools, **how)
    return Prepared.open(folder / "prepared").split(data.split)


def our_side(split: PreparedSplit, batch_size: int) -> Side:
    """Our task, criterion, model and optimizer, as fairseq-train puts them together."""
    name = kind_of(Prepared.open(split.folder)).task
    plain = {"sentence_layers": 0} if name == "roberta_summarization" else {}
    task = TASK_REGISTRY[name].setup_task(TASK_DATACLASS_REGISTRY[name](data=str(split.folder), seed=SEED, **plain))
    model = task.build_model(Namespace(arch="fast_roberta_base", **sizes(*SHAPE))).train()
    criterion = CRITERION_REGISTRY[name].build_criterion(CRITERION_DATACLASS_REGISTRY[name](), task)
    optimizer = RobertaAdamW(RobertaAdamWConfig(lr=[LR], weight_decay=WEIGHT_DECAY), list(model.parameters()))
    task.load_dataset(split.name)
    dataset = task.dataset(split.name)

    def step(indices: list[int]) -> float:
        batch = dataset.__getitems__([(1, index) for index in indices])
        optimizer.zero_grad()
        loss, sample_size, _ = criterion(model, batch)
        optimizer.backward(loss)
        optimizer.multiply_grads(1 / sample_size)
        optimizer.step()
        return float(loss.item() / sample_size)

    return Side([batch.indices.tolist() for batch in dataset.batches(1, max_sentences=batch_size)], step)


def hugging_face_sides(split: PreparedSplit, batch_size: int) -> dict[str, Side]:
    """Hugging Face's model, collator and the two samplers of its Trainer."""
    transformers = import_transformers()
    from transformers.trainer_pt_utils import LengthGroupedSampler

    is_summary = "is_labelled" in split.columns
    step = (hugging_face_summary_step if is_summary else hugging_face_step)(transformers, split)
    lengths = longest_of(split).tolist()
    generator = torch.Generator().manual_seed(SEED)
    samplers = {
        "Hugging Face": torch.utils.data.RandomSampler(lengths, generator=generator),
        "Hugging Face, by length": LengthGroupedSampler(batch_size, lengths=lengths, generator=generator),
    }
    return {name: Side(list(cut(list(sampler), batch_size)), step) for name, sampler in samplers.items()}


def hugging_face_step(transformers: Any, split: PreparedSplit) -> Callable[[list[int]], float]:
    """A step with Hugging Face's collator, model and default optimizer."""
    prepared, first, sequences = Prepared.open(split.folder), split.offsets, split.sequences
    is_tagging, is_choice = "token_labels" in split.facts["arrays"], bool((np.diff(first) > 1).all())
    vocabulary = prepared.vocabulary
    kind, labels, num_labels = "RobertaForTokenClassification", [], len(prepared.settings.get("labels", ()))
    if is_tagging:
        labels = np.split(np.asarray(split.array("token_labels")), np.cumsum(sequences.sizes)[:-1])
    else:
        kind = "RobertaForMultipleChoice" if is_choice else "RobertaForSequenceClassification"
        labels = split.columns["label"]
        num_labels = int(labels.max()) + 1
    torch.manual_seed(SEED)
    config = hugging_face_config(SHAPE, vocab_size=len(vocabulary), length=LENGTH, num_labels=num_labels)
    model = getattr(transformers, kind)(config).train()
    optimizer = torchs_adamw(model, lr=LR, weight_decay=WEIGHT_DECAY)
    collator = transformers.DataCollatorForMultipleChoice if is_choice else transformers.DataCollatorWithPadding
    collator = transformers.DataCollatorForTokenClassification if is_tagging else collator
    collate = collator(padding_tokenizer(transformers, vocabulary))

    def feature(index: int) -> dict[str, Any]:
        rows = [sequences[row].tolist() for row in range(first[index], first[index + 1])]
        masks = [[1] * len(row) for row in rows]
        inputs = (rows, masks) if is_choice else (rows[0], masks[0])
        if is_tagging:
            return {"input_ids": inputs[0], "attention_mask": inputs[1], "labels": labels[index].tolist()}
        return {"input_ids": inputs[0], "attention_mask": inputs[1], "label": int(labels[index])}

    def step(indices: list[int]) -> float:
        batch = collate([feature(index) for index in indices])
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def hugging_face_summary_step(transformers: Any, split: PreparedSplit) -> Callable[[list[int]], float]:
    """A step of Hugging Face's encoder with a linear layer on the features of each <s>."""
    vocabulary = Prepared.open(split.folder).vocabulary
    torch.manual_seed(SEED)
    config = hugging_face_config(SHAPE, vocab_size=len(vocabulary), length=LENGTH, num_labels=1)
    encoder = transformers.RobertaModel(config, add_pooling_layer=False)
    model = torch.nn.ModuleDict({"encoder": encoder, "classifier": torch.nn.Linear(SHAPE[1], 1)}).train()
    optimizer = torchs_adamw(model, lr=LR, weight_decay=WEIGHT_DECAY)
    collate = transformers.DataCollatorWithPadding(padding_tokenizer(transformers, vocabulary))
    window, position, label = (np.asarray(split.array(name)) for name in ("window", "position", "label"))
    first, offsets = split.array("first_sentence"), split.offsets

    def step(indices: list[int]) -> float:
        chosen = np.array(indices)
        counts, sentences = offsets[chosen + 1] - offsets[chosen], first[chosen + 1] - first[chosen]
        rows = [row for index in indices for row in range(offsets[index], offsets[index + 1])]
        of_batch = np.concatenate([np.arange(first[index], first[index + 1]) for index in indices])
        row = np.repeat(np.cumsum(counts) - counts, sentences) + window[of_batch]
        batch = collate([{"input_ids": split.sequences[each].tolist()} for each in rows])
        optimizer.zero_grad()
        features = model["encoder"](**batch).last_hidden_state
        logits = model["classifier"](features[torch.from_numpy(row), torch.from_numpy(position[of_batch]).long()])
        wanted = torch.from_numpy(label[of_batch]).float()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits[:, 0], wanted)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def padding_tokenizer(transformers: Any, vocabulary: Vocabulary) -> Any:
    """A tokenizer of Hugging Face's that pads with the id of <pad>; the texts are ids already."""
    from tokenizers import Tokenizer, models

    ids = {symbol: index for index, symbol in enumerate(vocabulary.symbols)}
    engine = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=engine, pad_token="<pad>")
    assert tokenizer.pad_token_id == vocabulary.pad_id
    return tokenizer


def longest_of(split: PreparedSplit) -> np.ndarray:
    """Tokens of each example's longest sequence (N,)."""
    return np.maximum.reduceat(split.sequences.sizes, split.offsets[:-1])


def cut(indices: Sequence[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(indices), size):
        yield [int(index) for index in indices[start : start + size]]


def padding_of(split: PreparedSplit, batches: list[list[int]]) -> float:
    """Percent of the positions of these batches that are padding."""
    tokens = np.add.reduceat(split.sequences.sizes, split.offsets[:-1], dtype=np.int64)
    longest, counts = longest_of(split), np.diff(split.offsets)
    positions = sum(int(longest[batch].max()) * int(counts[batch].sum()) for batch in batches)
    return 100 * (1 - sum(int(tokens[batch].sum()) for batch in batches) / positions)


def measure(sides: dict[str, Side], *, rounds: int, steps: int, batch_size: int) -> dict[str, list[float]]:
    """Seconds of each side's rounds of `steps` full batches; a step of each comes before."""
    rng = np.random.default_rng(SEED)
    full = {name: [batch for batch in side.batches if len(batch) == batch_size] for name, side in sides.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for name, side in sides.items():
        side.step(full[name][0])
    for number in range(rounds):
        for name, side in sides.items():
            chosen = [full[name][index] for index in rng.choice(len(full[name]), steps, replace=False)]
            torch.manual_seed(number)
            seconds[name].append(seconds_of(lambda side=side, chosen=chosen: [*map(side.step, chosen)]))  # type: ignore[misc]
    return seconds


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=SETS, default=list(SETS), help="which sets")
    parser.add_argument("--rounds", type=int, default=7, help="measured rounds a side")
    parser.add_argument("--steps", type=int, default=0, help="batches of a round (default: as many as suit the set)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    report = Report("finetuning_cpu1", "Fine-tuning on one CPU thread", __doc__)
    for task in arguments.tasks:
        size, steps = SETS[task].batch_size, arguments.steps or SETS[task].steps
        with tempfile.TemporaryDirectory() as folder:
            split = prepare(task, Path(folder))
            sides = {**hugging_face_sides(split, size), "ours": our_side(split, size)}
            seconds = measure(sides, rounds=arguments.rounds, steps=steps, batch_size=size)
            padding = {name: padding_of(split, side.batches) for name, side in sides.items()}
        title = f"{task}: {steps} batches of {size} of its {len(split):,} examples"
        report.table(title, seconds, baseline="Hugging Face", amount=steps * size, unit="examples")
        report.text("Padding: " + ", ".join(f"{name} {share:.1f} %" for name, share in padding.items()) + ".")
    report.show(write=arguments.write)


if __name__ == "__main__":
    main()
