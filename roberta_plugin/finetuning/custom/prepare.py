"""Tables -> a prepared folder (`finetuning/prepared.py`): the splits train, valid and, if there is one, test.

An example is a row of a table, in order, with a record of its `id` and `line`. The columns are those of its kind
(`roberta_plugin/kinds`); a test table without labels has none.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.custom.options import CustomOptions
from roberta_plugin.finetuning.custom.splits import cut_fold, cut_share, divided
from roberta_plugin.finetuning.model_inputs import Encoder
from roberta_plugin.finetuning.prepared_writer import PreparedWriter
from roberta_plugin.finetuning.raw_files import describe
from roberta_plugin.kinds import table_kind
from roberta_plugin.kinds.examples import (
    Example,
    check_ids,
    is_missing,
    shared_sides,
    warn_of_duplicates,
    warn_of_overlap,
)
from roberta_plugin.kinds.tables import TableKind

logger = logging.getLogger(__name__)

VALID_SHARE = 0.1
_COLUMNS = ("text_column", "text_pair_column", "label_column", "id_column", "group_column")
_RECORDED = (*_COLUMNS, "delimiter", "label_separator", "fold")


def settings(task: str, *, max_length: int, options: CustomOptions) -> dict[str, Any]:
    """See `benchmarks.Benchmark.settings`; `labels` are among them if they are given.

    Raises:
        ValueError: if the text is its own label, or what `TableKind.settings_of` refuses.
    """
    options = replace(options, kind=options.kind or "classification")  # checks what goes with that kind
    name = str(options.kind).replace("-", "_")
    name = "classification" if name == "pair" else name
    plain = {item: getattr(options, item) for item in _RECORDED}
    is_cut = options.valid is None and options.fold is None
    found: dict[str, Any] = {
        **plain,
        "kind": name,
        "max_length": max_length,
        "text_column": options.text_column or "text",
        "label_column": list(options.label_column or ("label",)),
        "valid_share": (options.valid_share or VALID_SHARE) if is_cut else None,
        "class_weights": options.class_weights or "none",
        **({"labels": list(options.labels)} if options.labels else {}),
    }
    found |= type(table_kind(found)).settings_of(options, max_length=max_length)
    if found["text_column"] in found["label_column"]:
        raise ValueError(
            f"--text-column and --label-column both name {found['text_column']!r}: the label would be in the text. "
            "Name two columns."
        )
    return found


def raw_files(task: str, raw: Path, options: CustomOptions) -> list[Path]:
    """See `benchmarks.Benchmark.raw_files`.

    Raises:
        FileNotFoundError: naming the option of a table that does not exist.
        ValueError: if there is no table to train on.
    """
    return list(_tables(raw, options).values())


def prepare(
    task: str,
    raw: Path,
    output: Path,
    *,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    max_length: int,
    options: CustomOptions,
) -> None:
    """See `benchmarks.Benchmark.prepare`; the tables are named by the options, relative to `raw`."""
    recorded = settings(task, max_length=max_length, options=options)
    tables = _tables(raw, options)
    reading = table_kind(recorded)
    for path in tables.values():
        reading.check_name(path)
    splits = {split: _read(path, reading, split=split) for split, path in tables.items()}
    table = splits["train"]
    if "valid" not in splits:
        splits |= _cut(table, reading, options)
    kind = table_kind({**recorded, **reading.discover(table, splits["train"])})
    _report(splits, kind)
    encoder = Encoder(tokenizer, vocabulary)
    with PreparedWriter(
        output,
        task=task,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        settings=kind.settings,
        source=describe(list(tables.values())),
    ) as writer:
        for name in sorted(splits, key=("train", "valid", "test").index):
            with writer.split(name) as split:
                kind.write(split, splits[name], encoder, max_length=max_length)


def _tables(raw: Path, options: CustomOptions) -> dict[str, Path]:
    """The tables by split."""
    if options.train is None:
        raise ValueError("--train is missing: name the table to train on, such as --train my.csv.")
    found = {split: raw / name for split, name in options.files.items()}
    for split, path in found.items():
        if not path.is_file():
            raise FileNotFoundError(f"--{split} {path} does not exist: check the path.")
    return found


def _read(path: Path, kind: TableKind, *, split: str) -> list[Example]:
    """The examples of a table; a test table may have no labels at all.

    Raises:
        ValueError: naming file, line and remedy.
    """
    rows = list(kind.rows(path))
    if not rows:
        raise ValueError(f"{path} has no rows: the table is empty or holds a header only.")
    without = [row for row in rows if not kind.is_labelled(row)] if split == "test" else []
    if 0 < len(without) < len(rows):
        raise ValueError(
            f"{without[0].where}: the label is empty, and {len(rows) - len(without):,} of {len(rows):,} rows of the "
            "test table have one. Fill in or leave out the rows without a label, or leave the whole column out."
        )
    examples = [kind.read(row, is_labelled=not without) for row in rows]
    id_column, group_column = kind.settings["id_column"], kind.settings["group_column"]
    if id_column is not None:
        check_ids(examples, id_column)
    if group_column is None or split != "train":
        return examples
    values = (row.value(group_column, option="--group-column") for row in rows)
    return [
        example if is_missing(value) else example._replace(group=str(value).strip())
        for example, value in zip(examples, values, strict=True)
    ]


def _cut(table: Sequence[Example], kind: TableKind, options: CustomOptions) -> dict[str, list[Example]]:
    """Training and development set out of one table, cut by groups, if there are any, else by texts."""
    table = _grouped(table, kind)

    def key(example: Example) -> Sequence[str]:
        return (example.group,) if example.group else kind.split_key(example)

    if options.fold is not None:
        number, total = options.part()
        chosen = cut_fold(table, number=number, total=total, key=key, labels=kind.split_labels)
        remedy = f"There are too few different texts for {total} folds: give a smaller number."
    else:
        chosen = cut_share(table, share=options.valid_share or VALID_SHARE, key=key, labels=kind.split_labels)
        remedy = "Give another --valid-share, or a table for --valid."
    if any(example.group for example in table):
        remedy += (
            f" The rows form {len({key(example) for example in table}):,} groups: another --group-column has more."
        )
    train, valid = divided(table, chosen, remedy=remedy)
    return {"train": train, "valid": valid}


def _grouped(table: Sequence[Example], kind: TableKind) -> Sequence[Example]:
    """Pairs of which most share one text with others, as questions with several answers, in groups by that text."""
    is_pair = kind.settings["text_pair_column"] is not None and len(kind.split_key(table[0])) == 2
    if kind.settings["group_column"] is not None or not is_pair:
        return table
    shared = shared_sides(table)
    side = shared.index(max(shared))
    is_grouped = shared[side] > len(table) / 2
    for number in (side, 1 - side):
        column = kind.settings[("text_column", "text_pair_column")[number]]
        found = f"{table[0].path}: {shared[number]:,} of {len(table):,} rows have the same {column!r} as another row"
        if number == side and is_grouped:
            logger.warning(
                f"{found}, and are on the same side of the cut: the groups are those of --group-column {column}."
            )
        elif shared[number]:
            logger.warning(
                f"{found}, and may be in the training set where the other is in the development set: --group-column "
                f"{column} keeps them together."
            )
    return [example._replace(group=example.texts[side]) for example in table] if is_grouped else table


def _report(splits: dict[str, list[Example]], kind: TableKind) -> None:
    """Log what is in the splits, and warn of what is odd."""
    for name, examples in splits.items():
        warn_of_duplicates(examples)
        if name != "train":
            warn_of_overlap(splits["train"], examples, split=name)
        logger.info(f"{name}: {len(examples):,} examples of {examples[0].path}")
    if kind.name == "classification":
        counts = Counter(example.target for example in splits["train"])
        for label in kind.labels:
            if not counts[label]:
                logger.warning(f"No row of the training set has the label {label!r}: the model cannot learn it.")
