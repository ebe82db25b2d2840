"""Every benchmark and every kind of own table: raw files in, prepared data, two updates, outputs, answers and exports out.

A subject goes the user's way: `roberta finetune --grid-only` prepares and writes the settings of the runs,
`fairseq-train` trains the first cell for two updates, `roberta evaluate` judges, `roberta predict` answers, and
`roberta export` writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from tests import tiny_glue, tiny_race, tiny_squad, tiny_summaries, tiny_superglue, tiny_tables, tiny_tagging
from tests.golden.entries import of_array, of_folder, of_state, of_text, sha
from tests.golden.steps import Work, load_checkpoint, log_of, raw_outputs

UPDATES = 2
FASTER = 100  # than the paper's rates, with which the weights of two updates are nearly those of none
SPLITS = ("train", "valid", "test")
MOST_SPLITS = 5  # whose outputs are recorded: XNLI has sixteen
LENGTH = 48
HEADS = re.compile(r"(?<!lm_)heads?\.|lora|adapter|classifier|qa_outputs")  # parameters that are listed by name
OF_MODEL = ("data", "arch", "encoder-layers", "encoder-embed-dim", "encoder-ffn-embed-dim", "encoder-attention-heads")
OF_MODEL += ("max-positions", "activation-fn", "pooler-activation-fn", "finetune-from-model", "cpu")
USUAL = {
    **{
        "no-epoch-checkpoints": "true",
        "keep-interval-updates": "1",
        "find-unused-parameters": "true",
        "num-workers": "0",
    },
    **{"log-interval": "50", "tensorboard-logdir": "{folder}/tensorboard", "optimizer": "roberta_adamw"},
    **{"adam-betas": "(0.9, 0.98)", "adam-eps": "1e-6", "clip-norm": "0.0", "lr-scheduler": "polynomial_decay"},
    **{"dropout": "0.1", "attention-dropout": "0.1", "required-batch-size-multiple": "1", "weight-decay": "0.1"},
    "distributed-world-size": "1",
}
TOKENIZERS = r"merges\.txt|vocab\.json|tokenizer.*\.json|special_tokens_map\.json|sentencepiece.*\.model|vocab\.bpe|encoder\.json|dict\.txt"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A task, and a variant of it."""

    task: str
    write: Callable[[Path], Path]
    """Writes the raw files below a folder -> what --raw names."""
    options: tuple[str, ...] = ()
    """Of `roberta finetune`."""
    scoring: tuple[str, ...] = ()
    """Of both `roberta finetune` and `roberta evaluate`."""
    length: int = LENGTH
    export: str = "huggingface"


def glue(folder: Path) -> Path:
    """The nine tasks of GLUE, and its diagnostic set."""
    return tiny_glue.write_official(folder)


def xnli(folder: Path) -> Path:
    """XNLI: one language to train on, all of them to test on."""
    from tests.unit.extensions.texts.xnli.test_tasks import write_xnli

    return write_xnli(folder)


def races_of_any_size(folder: Path) -> Path:
    """`multiple_choice`: JSON Lines with two to five options."""
    for split, count in (("train", 24), ("valid", 9), ("test", 5)):
        entries = []
        for number in range(count):
            options = [f"bad {word}" for word in "abcde"[: 2 + number % 4]]
            options[number % len(options)] = "good"
            answer = {"answer": number % len(options)} if split != "test" else {}
            entries.append({"id": str(number), "context": "so so", "question": "is it ?", "options": options, **answer})
        tiny_race.write_lines(folder / f"{split}.jsonl", entries)
    return folder


def conll(folder: Path, *names: str) -> Path:
    """Three files of tagged words with types of CoNLL-2003 and WNUT-17."""
    tiny_tagging.write_raw(
        folder, sizes={"train": 24, "valid": 8, "test": 6}, scheme="iob1" if "eng" in names[0] else "iob2"
    )
    for name, split in zip(names, ("train", "valid", "test"), strict=True):
        text = (folder / f"{split}.txt").read_text()
        types = ("LOC", "PER") if "eng" in names[0] else ("location", "person")
        (folder / name).write_text(text.replace("FINE", types[0]).replace("POOR", types[1]))
        if name != f"{split}.txt":
            (folder / f"{split}.txt").unlink()
    return folder


def documents(folder: Path) -> Path:
    """`tagging`: sentences with a line before every fourth that begins a document."""
    tiny_tagging.write_raw(folder, sizes={"train": 24, "valid": 8})
    for path in folder.iterdir():
        sentences = path.read_text().split("\n\n")
        starts = ["-DOCSTART- -X- O\n\n" if number % 4 == 0 else "" for number in range(len(sentences))]
        path.write_text("\n\n".join(start + sentence for start, sentence in zip(starts, sentences, strict=True)))
    return folder


def news(folder: Path) -> Path:
    """`cnn_dailymail`: an article, and the lines of its highlights."""
    for split, count in (("train", 20), ("valid", 6)):
        lines = []
        for number in range(count):
            words = [f"It is {('bad', 'good')[(number + place) % 3 == 0]} number {place}." for place in range(8)]
            highlights = "\n".join(word for word in words if "good" in word)
            lines.append(json.dumps({"article": " ".join(words), "highlights": highlights, "id": str(number)}))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def superglue(task: str) -> Callable[[Path], Path]:
    """The three files of a task of SuperGLUE, WinoGrande or CommonsenseQA."""
    return lambda folder: tiny_superglue.write_task(folder, task) / tiny_superglue.FOLDERS.get(task, task)


def table(kind: str, *, long: bool = False) -> Callable[[Path], Path]:
    """train.jsonl, valid.jsonl and test.jsonl of a kind of own table."""

    def write(folder: Path) -> Path:
        folder.mkdir(parents=True)
        for seed, (split, number) in enumerate((("train", 30), ("valid", 12), ("test", 6))):
            rows = tiny_tables.rows_of(kind, number, seed=seed)
            if long:
                rows = [{**row, "text": f"{row['text']} " * (1 + place % 4)} for place, row in enumerate(rows)]
            if kind == "embedding":
                others = [row["text"] for row in [*rows[1:], rows[0]]]
                rows = [
                    {**row, "far": far, "label": place % 5 / 4}
                    for place, (row, far) in enumerate(zip(rows, others, strict=True))
                ]
            tiny_tables.write_json_lines(folder / f"{split}.jsonl", rows)
        return folder

    return write


def own(kind: str, *options: str, files: tuple[str, ...] = SPLITS, long: bool = False, **more: Any) -> Subject:
    """A table of your own, or one for each of these splits."""
    named = [word for split in files for word in (f"--{split}", f"{split}.jsonl")]
    return Subject(task="custom", write=table(kind, long=long), options=("--kind", kind, *named, *options), **more)


PAIR = ("--text-pair-column", "pair")
SUBJECTS: dict[str, Subject] = {
    **{
        name: Subject(task=name, write=lambda folder, name=name: glue(folder) / name.removesuffix("-ranking"))
        for name in ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI")
    },
    "QNLI-ranking": Subject(
        task="QNLI-ranking", write=lambda folder: tiny_glue.write_task(folder, "QNLI", train=24, dev=8, test=6) / "QNLI"
    ),
    "XNLI": Subject(task="XNLI", write=xnli),
    **{
        task: Subject(
            task=task,
            write=lambda folder, task=task: tiny_squad.write_raw(folder, task=task),
            options=("--question-length", "8", "--doc-stride", "10"),
            length=32,
        )
        for task in ("squad1", "squad2")
    },
    "race": Subject(
        task="race",
        write=lambda folder: tiny_race.write_race(folder, train=12, dev=6),
        options=("--question-length", "20"),
    ),
    "race, question first": Subject(
        task="race",
        write=lambda folder: tiny_race.write_race(folder, train=12, dev=6),
        options=("--question-length", "20", "--order", "question"),
    ),
    "multiple_choice": Subject(task="multiple_choice", write=races_of_any_size, options=("--question-length", "20")),
    "conll2003": Subject(
        task="conll2003", write=lambda folder: conll(folder, "eng.train", "eng.testa", "eng.testb"), options=("--doc-stride", "8"), length=24
    ),
    "wnut17": Subject(
        task="wnut17",
        write=lambda folder: conll(folder, "wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
        length=24,
    ),
    "tagging, whole documents, all pieces": Subject(
        task="tagging",
        write=documents,
        options=("--context", "document", "--label-pieces", "all", "--doc-stride", "8"),
        length=24,
    ),
    "summaries": Subject(
        task="summaries", write=lambda folder: tiny_summaries.write_raw(folder, sizes={"train": 20, "valid": 6}), length=64
    ),
    "cnn_dailymail": Subject(task="cnn_dailymail", write=news, length=64),
    **{
        task: Subject(task=task, write=superglue(task), length=96 if task == "MultiRC" else 64)
        for task in ("WSC", "WinoGrande", "BoolQ", "CB", "SuperRTE", "WiC", "MultiRC", "COPA", "ReCoRD", "CommonsenseQA")
    },
    "own classification": own("classification"),
    "own classification, one table": own("classification", "--valid-share", "0.3", files=("train",)),
    "own classification, weights and calibration": own(
        "classification", "--class-weights", "balanced", "--label-smoothing", "0.1", scoring=("--calibrate",)
    ),
    "own classification, adapters": own(
        "classification", "--set", "lora-rank=2", "--only", "lr=5e-4", export="peft"
    ),
    "own classification, frozen layers, decay": own(
        "classification", "--set", "freeze-layers=1", "--set", "layer-lr-decay=0.9"
    ),
    "own classification in windows": own(
        "classification", "--long-texts", "windows", "--window-stride", "20", long=True, length=32
    ),
    "own classification, head and tail": own("classification", "--long-texts", "head+tail", long=True, length=32),
    "own pairs, threshold": own("pair", *PAIR, scoring=("--tune-threshold", "mcc")),
    "own multi-label": own("multi-label"),
    "own regression": own("regression"),
    "own multiple-choice": own("multiple-choice"),
    "own question-answering": own("question-answering", length=32),
    "own tagging": own("tagging", length=24),
    "own embedding, pairs": own("embedding", *PAIR, export="sentence-transformers"),
    "own embedding, wrong texts": own("embedding", *PAIR, "--negative-column", "far", export="sentence-transformers"),
    "own embedding, triplets, normalized": own(
        *("embedding", *PAIR, "--negative-column", "far", "--embedding-loss", "triplet", "--normalize", "--pooling", "max"),
        export="sentence-transformers",
    ),
    "own embedding, scores": own("embedding", *PAIR, "--label-column", "label", export="sentence-transformers"),
    "own embedding, single texts": own("embedding", *PAIR, "--embedding-loss", "simcse", export="sentence-transformers"),
}  # fmt: skip
NO_EXPORT = ("summaries", "cnn_dailymail")


def record(name: str, folder: Path) -> dict[str, Any]:
    """The entries of a subject."""
    from tests.tiny_conversions import write_checkpoint

    subject, work = SUBJECTS[name], Work(folder)
    raw = subject.write(folder / "raw")
    model = write_checkpoint(folder / "model", max_positions=128, sentencepiece=subject.task == "XNLI") / "model.pt"
    words = ("--raw", raw, "--tokenizer", folder / "model", "--model", model, "--max-length", subject.length)
    out = folder / "out"
    printed = work.roberta(
        *("finetune", subject.task, *words, *subject.options, *subject.scoring),
        *("--seeds", "1", "--grid-only", "--output-dir", out),
    )
    found: dict[str, Any] = {"prepare": {"printed": of_text(work.clean(printed))}}
    found["prepared"] = by_split(of_folder(out / "data", work.clean, skip=(TOKENIZERS,)))
    grid = yaml.safe_load((out / "finetune.yaml").read_text())
    found["grid"] = [work.clean(line) for line in settings_of(grid)]
    best, trained = training(work, grid)
    found["training"] = trained
    splits = [path.name.removesuffix(".first.npy") for path in (out / "data").glob("*.first.npy")]
    splits = sorted((each for each in splits if each != "train"), key=lambda split: (split != "valid", split))
    for split in splits[:MOST_SPLITS]:
        found[f"outputs of {split}"] = outputs_of(work, best, out / "data", split)
    models = (best, folder / "checkpoints" / "checkpoint_last.pt")
    where = ("--data", out / "data", "--checkpoint", *models, "--output-dir", folder / "results")
    work.roberta("evaluate", *where, "--no-progress", *subject.scoring)
    found["evaluation"] = evaluations(work, folder / "results", splits[:MOST_SPLITS])
    found["answers"] = of_folder(folder / "results", work.clean, skip=("^evaluation_", r"^results\.json$", r"\.png$"))
    if subject.task == "custom":
        where = ("--input", raw / "test.jsonl", "--output", folder / "predicted.jsonl")
        work.roberta("predict", best, *where, "--no-progress")
        found["predicted"] = of_text(work.clean((folder / "predicted.jsonl").read_text()))
    if subject.task not in NO_EXPORT:
        found["export"] = export(work, best, subject.export, out / "data")
    return found


def settings_of(grid: dict[str, Any]) -> list[str]:
    """The lines of a grid file that decide what is trained, without those that all tasks have but for a few."""
    train = {name: value for name, value in grid["train"].items() if name not in OF_MODEL}
    lines = [f"{name} = {value}" for name, value in sorted(train.items()) if USUAL.get(name) != value]
    lines += [f"no {name}" for name in USUAL if name not in train]
    lines += [f"{axis}: {json.dumps(values)}" for axis, values in grid["axes"].items()]
    return [*lines, f"metric: {json.dumps(grid['metric'])}"]


def training(work: Work, grid: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Two fast updates of the first cell: the checkpoint, and what is recorded of it."""
    options = dict(grid["train"])
    for axis, values in grid["axes"].items():
        if isinstance(values, dict):
            options |= next(iter(values.values()))
        else:
            options[axis] = values[0]
    options["lr"] = str(FASTER * float(options["lr"]))
    options |= {"seed": grid["seeds"][0], "max-update": str(UPDATES), "log-interval": "1", "log-format": "json"}
    options |= {"save-dir": str(work.folder / "checkpoints"), "log-file": str(work.folder / "log.txt")}
    del options["cpu"], options["tensorboard-logdir"]
    words = [data := str(options.pop("data"))]
    for name, value in options.items():
        words += [f"--{name}"] if value == "true" else [f"--{name}", str(value)]
    numbers = work.train(*words)
    validation = log_of(work.folder / "log.txt", "valid_loss")[-1]
    skipped = ("epoch", "valid_wps", "valid_num_updates", "valid_wpb", "valid_bsz")
    state = load_checkpoint(work.folder / "checkpoints" / "checkpoint_last.pt")
    found = {
        **numbers,
        "validation": [f"{key}={value}" for key, value in validation.items() if key not in skipped],
        "model": of_state(state["model"], listed=HEADS),
        "remembered": of_text(work.clean(json.dumps(state.get("task_state"), sort_keys=True, default=str))),
    }
    return with_opinions(work, state, Path(data)), found


def with_opinions(work: Work, state: dict[str, Any], data: Path) -> Path:
    """The checkpoint with a head whose answers differ from input to input, which those of two updates do not.

    Its weights are changed, and then its biases, so that the mean of each output for the development set is 0.
    """
    path = work.folder / "opinions.pt"
    heads = {name: parameter for name, parameter in state["model"].items() if HEADS.search(name)}
    for name, parameter in heads.items():
        seed = int(sha(name.encode())[:8], 16)
        change = torch.from_numpy(np.random.default_rng(seed).standard_normal(tuple(parameter.shape)))
        parameter.add_(change.to(parameter.dtype), alpha=0.5)
    torch.save(state, path)

    def means() -> list[list[float]]:
        arrays = raw_outputs(path, data, "valid").values()
        return [array.reshape(len(array), -1).mean(axis=0, dtype=np.float64).tolist() for array in arrays]

    for mean in work.python(means):
        for name, parameter in heads.items():
            if name.endswith("out_proj.bias") and parameter.shape == (len(mean),):
                parameter.sub_(torch.tensor(mean))
    torch.save(state, path)
    return path


def outputs_of(work: Work, checkpoint: Path, data: Path, split: str) -> dict[str, Any]:
    """The raw outputs of the model for a split."""

    def compute() -> dict[str, Any]:
        return {name: of_array(array) for name, array in raw_outputs(checkpoint, data, split).items()}

    found: dict[str, Any] = work.python(compute)
    return found


def by_split(files: dict[str, Any]) -> dict[str, Any]:
    """The files of a prepared folder, those of each split in a list; float arrays, which have a tolerance, alone."""
    found: dict[str, Any] = {}
    for name, entry in files.items():
        split, _, rest = name.partition(".")
        if isinstance(entry, str) and name != "prepared.json":
            found.setdefault(split, []).append(f"{rest} {entry}")
        else:
            found[name] = entry
    return found


def evaluations(work: Work, folder: Path, splits: list[str]) -> dict[str, Any]:
    """Metrics, baseline, details and remarks on each split."""
    found: dict[str, Any] = {}
    for split in splits:
        content = json.loads((folder / f"evaluation_{split}.json").read_text())
        found[split] = {
            "metrics": content["members"][0]["metrics"],
            "median and ensemble": of_text(json.dumps([content["median"], content["ensemble"]])),
            "details": of_text(work.clean(json.dumps(content.get("details"), sort_keys=True))),
            "remarks": of_text(work.clean("\n".join(content.get("remarks", ())))),
        }
        if split == "valid":
            found[split]["baseline"] = content.get("baseline", {})
    return found


def export(work: Work, checkpoint: Path, to: str, data: Path) -> dict[str, Any]:
    """Names and values of an export, and its other files."""
    folder = work.folder / "exported"
    work.roberta("export", checkpoint, "--to", to, "--output-dir", folder, "--data", data)
    return exported(work, folder, skip=(TOKENIZERS,), listed=None)


def exported(
    work: Work, folder: Path, *, skip: tuple[str, ...] = (), listed: re.Pattern[str] | None = HEADS
) -> dict[str, Any]:
    """Names and values of the models in a folder, and its other files."""
    from safetensors.torch import load_file

    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".safetensors":
            found[path.relative_to(folder).as_posix()] = of_state(load_file(path), listed=listed)
        elif path.suffix == ".pt":
            found[path.relative_to(folder).as_posix()] = of_state(load_checkpoint(path)["model"], listed=listed)
    others = of_folder(folder, work.clean, skip=(r"\.safetensors$", r"\.pt$", r"README\.md$", *skip))
    return found | {"files": others}
