"""XNLI: MultiNLI in one language, with a test split for each of fifteen languages.

    multinli.train.en.tsv   premise  hypo  label, `contradictory` for contradiction (XNLI-MT 1.0)   train
    xnli.dev.tsv            language  gold_label  ...  sentence1  sentence2  ...  (XNLI 1.0)        valid, of --language
    xnli.test.tsv           the same                                                                test_ar ... test_zh

The checkpoint is chosen by the development set of the training language, so that results in the other languages are
zero-shot ("cross-lingual transfer" of XLM-R, Conneau et al. 2020, section 5.2 and table 1).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from roberta_plugin.extensions.texts.options import XNLI_LANGUAGES, XnliOptions
from roberta_plugin.finetuning.benchmarks.base import find_files
from roberta_plugin.finetuning.benchmarks.tsv_files import SplitSource, TsvFiles, read_rows, tsv_task
from roberta_plugin.finetuning.examples import Example

# XLM-R large, trained in English only, on the test sets (Conneau et al. 2020, table 1).
XLMR = dict(
    zip(
        ("en", "fr", "es", "de", "el", "bg", "ru", "tr", "ar", "vi", "th", "zh", "hi", "sw", "ur"),
        (89.1, 84.1, 85.1, 83.9, 82.9, 84.0, 81.2, 79.6, 79.8, 80.8, 78.1, 80.2, 76.9, 73.9, 73.8),
        strict=True,
    )
)
_XNLI = TsvFiles(
    name="XNLI",
    sentences=("sentence1", "sentence2"),
    label="gold_label",
    labels=("contradiction", "neutral", "entailment"),
    splits=(
        SplitSource(
            split="train",
            files=("multinli.train.en.tsv",),
            sentences=("premise", "hypo"),
            label="label",
            renamed_labels={"contradictory": "contradiction"},
        ),
        SplitSource(split="valid", files=("xnli.dev.tsv",)),
        SplitSource(split="test", files=("xnli.test.tsv",)),
    ),
)


def xnli_files(raw: Path, options: XnliOptions) -> dict[str, list[Path]]:
    """`Benchmark.files`. The folder `raw` holds the files themselves or the folders of the two official archives."""
    training = f"multinli.train.{options.language or 'en'}.tsv"
    names = {
        "train": [f"{folder}{training}" for folder in ("", "XNLI-MT-1.0/multinli/", "multinli/")],
        "valid": ["xnli.dev.tsv", "XNLI-1.0/xnli.dev.tsv"],
        "test": ["xnli.test.tsv", "XNLI-1.0/xnli.test.tsv"],
    }
    paths = find_files("XNLI", raw, names)
    tests = {f"test_{language}": [paths["test"]] for language in XNLI_LANGUAGES} if "test" in paths else {}
    return {"train": [paths["train"]], "valid": [paths["valid"]], **tests}


def xnli_examples(split: str, paths: list[Path], options: XnliOptions) -> list[Example]:
    """The examples of a split."""
    (path,) = paths
    language = split.removeprefix("test_") if split.startswith("test_") else options.language or "en"
    (source,) = (source for source in _XNLI.sources if source.split == split.partition("_")[0])
    return read_rows(_XNLI, replace(source, only={} if split == "train" else {"language": language}), path)


_XNLI_ROW = tsv_task(
    _XNLI,
    kind="classification",
    read=xnli_examples,
    files=xnli_files,
    on_hub=("facebook/xnli", None),
    paper={f"test_{language}": {"XLM-R large": {"accuracy": number}} for language, number in XLMR.items()},
)


def xnli_settings(*, options: XnliOptions, **more: Any) -> dict[str, Any]:
    """`Benchmark.settings`."""
    return {**_XNLI_ROW.settings(options=options, **more), "language": options.language or "en"}


TASKS = {"XNLI": replace(_XNLI_ROW, settings=xnli_settings)}
