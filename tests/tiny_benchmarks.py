"""A tokenizer that needs no training, and prepared folders of made-up examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from roberta_plugin.data.tokenizers.byte_level_bpe import BYTE_CHARACTERS, ByteLevelBpe
from roberta_plugin.data.vocabulary import Row, Vocabulary
from roberta_plugin.finetuning.benchmarks import benchmark_of, options_for
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.prepared import Prepared, PreparedWriter

MERGES = [("o", "o"), ("g", "oo"), ("goo", "d"), ("b", "a"), ("ba", "d"), ("\u0120", "good"), ("\u0120", "bad")]


def words_tokenizer() -> tuple[ByteLevelBpe, Vocabulary]:
    """Byte-level BPE that knows the words good and bad, and every byte."""
    pieces = [*BYTE_CHARACTERS, *(first + second for first, second in MERGES)]
    tokenizer = ByteLevelBpe(pieces, MERGES)
    return tokenizer, Vocabulary(Row(symbol, 1) for symbol in tokenizer.symbols)


def write_tokenizer(folder: Path) -> Path:
    """The same as files, for --tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer, vocabulary = words_tokenizer()
    tokenizer.save(folder)
    vocabulary.save(folder / "dict.txt")
    return folder


def write_prepared(
    folder: Path, *, task: str = "made", num_examples: int = 40, num_options: int | None = None, seed: int = 0
) -> Prepared:
    """Examples of random ids with columns label and weight; `num_options` sequences each, or 1 to 3."""
    tokenizer, vocabulary = words_tokenizer()
    rng = np.random.default_rng(seed)
    settings = {
        "max_length": 30,
        "labels": ["no", "yes"],
        "kind": "made" if task.startswith("made") else "classification",
    }
    with PreparedWriter(folder, task=task, tokenizer=tokenizer, vocabulary=vocabulary, settings=settings) as writer:
        for split in ("train", "valid"):
            with writer.split(split) as out:
                for number in range(num_examples):
                    count = num_options or int(rng.integers(1, 4))
                    sequences = [
                        np.array([0, *rng.integers(4, 250, rng.integers(1, 28)), 2], dtype=np.int32)
                        for _ in range(count)
                    ]
                    out.add(sequences, label=int(rng.integers(2)), weight=number / 7)
                    out.record({"id": f"{split}-{number}", "text": "caf\u00e9"})
                out.array("matrix", np.arange(6).reshape(2, 3))
    return Prepared.open(folder)


def write_made(folder: Path, *, train: int = 240, valid: int = 60, test: int = 20, seed: int = 0) -> Path:
    """Files of the tasks `made` and `made-too`: good is mostly yes, and bad no; the test set has no labels."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for split, number in (("train", train), ("valid", valid), ("test", test)):
        with open(folder / f"{split}.jsonl", "w", encoding="utf-8") as file:
            for index in range(number):
                is_yes = bool(rng.random() < 0.6)
                word = ("bad", "good")[is_yes != (rng.random() < 0.05)]
                words = ["so", *rng.permutation([*rng.choice(list("abcdef"), rng.integers(2, 9)), word])]
                label = {} if split == "test" else {"label": ("no", "yes")[is_yes]}
                file.write(json.dumps({"id": f"{split}-{index}", "text": " ".join(words), **label}) + "\n")
    return folder


def prepared_of(task: str, raw: Path, folder: Path, *, max_length: int = 60, **options: Any) -> Prepared:
    """The official files of a task, prepared in `folder`."""
    tokenizer, vocabulary = words_tokenizer()
    tools: dict[str, Any] = {"tokenizer": tokenizer, "vocabulary": vocabulary, "max_length": max_length}
    benchmark_of(task).prepare(raw, folder, **tools, options=options_for(task, options))
    return Prepared.open(folder)


def official(prepared: Prepared, checkpoint: Path, folder: Path | None = None, **options: Any) -> dict[str, Any]:
    """The metrics of a checkpoint on the development set, with its prediction files in a folder if one is given."""
    from roberta_plugin.experiments.inference import load_model, run_model

    model, task = load_model(checkpoint, prepared)
    outputs = [run_model(model, task, prepared.split("valid"))]
    given = options_for(prepared.task, options)
    return benchmark_of(prepared.task).score(prepared, "valid", outputs, folder=folder, options=given)


def random_outputs(kind: Any, split: Any, *, seed: int = 1) -> RawOutputs:
    """Outputs of any kind, with the fields that it names."""
    rng, sizes = np.random.default_rng(seed), split.sequences.sizes
    num_rows = len(sizes) if kind.window_pooling is None else len(split)
    num_labels = len(kind.labels) if kind.has_labels and kind.name != "multiple_choice" else 1
    shapes: dict[str, Any] = {
        "logits": (num_rows, num_labels),
        "answerable_logits": (len(sizes),),
        "vectors": (len(sizes), 8),
        "token_logits": [(size, num_labels) for size in sizes],
        "start_logits": [(size,) for size in sizes],
        "end_logits": [(size,) for size in sizes],
        "sentence_logits": (int(split.columns["sentences"].sum()) if "sentences" in split.columns else 0,),
    }

    def drawn(shape: Any) -> Any:
        return [drawn(each) for each in shape] if isinstance(shape, list) else rng.normal(size=shape).astype("f4")

    return RawOutputs(**{name: drawn(shapes[name]) for name in kind.outputs})


def examples_of(task: str, raw: Path, *splits: str, **options: Any) -> dict[str, list[Any]]:
    """The examples of these splits, or of all, as the official files of a folder give them to the kind."""
    benchmark, given = benchmark_of(task), options_for(task, options)
    settings = benchmark.settings(max_length=512, options=given)
    files = {split: paths for split, paths in benchmark.files(raw, given).items() if split in (splits or (split,))}
    return {split: list(examples) for split, examples in benchmark.records(files, given, settings)[0].items()}
