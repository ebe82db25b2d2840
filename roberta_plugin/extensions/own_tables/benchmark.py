"""Tables of your own: `custom`. The kind decides what a row means, and how it is learned and evaluated.

An example is a row of a table, in order, with a record of its `id` and `line`. It has the columns of its kind, or none
in a test table without labels. The grid depends on the size of the data.

One table is cut into training and development set by a hash of the text, so that equal texts are never on both sides.
Each label is cut by itself, so that rare labels are on both sides, too. The hash depends only on the text, so a row
stays on its side when the table is sorted. When rows are added or removed, only few rows of rare labels change sides.

The paper tunes on GLUE with learning rates of 1e-5, 2e-5 and 3e-5, batches of 16 and 32, 10 epochs and five seeds
(Table 10). That is the middle of this table. Smaller sets get more epochs, because few updates leave a model unstable
(Mosbach et al. 2021, arXiv 2006.04884, who train 20 epochs), and larger sets fewer runs:

    examples         learning rates    batch    epochs  seeds  runs
    below 1,000      {1,2,3}e-5        16       20      5      15
    below 10,000     {1,2,3}e-5        16, 32   10      3      18
    below 100,000    {1,2,3}e-5        32       5       3      9
    from 100,000 on  {1,3}e-5          32       3       3      6

The rest is as in Table 10: warm-up 6 %, linear decay, weight decay 0.1. A kind may have a grid of its own
(`TableKind.grid`).
"""

from __future__ import annotations

import hashlib
import logging
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.extensions.own_tables.options import USUAL_KIND, TableOptions
from roberta_plugin.finetuning.benchmarks.base import Benchmark, Files, Training, named_files
from roberta_plugin.finetuning.examples import (
    Example,
    is_missing,
    shared_sides,
    warn_of_duplicates,
    warn_of_look_alikes,
    warn_of_overlap,
)
from roberta_plugin.finetuning.kinds import KINDS, table_kind
from roberta_plugin.finetuning.kinds.answering import OWN
from roberta_plugin.finetuning.kinds.foreign_rows import check_layout
from roberta_plugin.finetuning.kinds.outputs import HELD_OUT, Outcome
from roberta_plugin.finetuning.kinds.tables import TableKind
from roberta_plugin.finetuning.prepared import Prepared, PreparedSplit, shown_texts
from roberta_plugin.finetuning.records import NotedValues
from roberta_plugin.spelling import meant
from roberta_plugin.tables import Row, with_unique_ids

Key = Callable[[Example], Sequence[str]]
"""The texts of an example that must not be on both sides."""
Labels = Callable[[Example], Iterable[str]]
"""The labels of an example; without labels, all examples are cut together."""
_ROUNDING = 1e-9


def position_of(texts: Sequence[str]) -> float:
    """A number from 0 to 1 (exclusive) for texts, uniformly distributed; runs of white space count as one space.

    Example: position_of(("A  text.",)) == position_of(("A text.",))
    """
    joined = "\x1f".join(" ".join(text.split()) for text in texts)
    digest = hashlib.blake2b(joined.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def cut_share(
    examples: Sequence[Example], *, share: float, key: Key, labels: Labels = lambda example: ()
) -> list[bool]:
    """True for each example of the development set, which gets about `share` of the texts of each label.

    The number of texts is rounded: with a share of a tenth, a label with five texts has one there.
    """

    def chosen_of(label: str, positions: Sequence[float]) -> range:
        return range(min(_number_below(share, positions, step=share), len(positions) - 1))  # the training set keeps one

    return _cut(examples, key, labels, chosen_of)


def cut_fold(
    examples: Sequence[Example], *, number: int, total: int, key: Key, labels: Labels = lambda example: ()
) -> list[bool]:
    """True for each example of part `number` (from 1) of `total`, which gets its share of the texts of each label."""

    def chosen_of(label: str, positions: Sequence[float]) -> range:
        turn = int(position_of((label,)) * total)  # otherwise part 1 of 5 would get a text of every label with 3 texts
        part = (number - 1 + turn) % total
        return range(*(_number_below(border / total, positions, step=1 / total) for border in (part, part + 1)))

    return _cut(examples, key, labels, chosen_of)


def _cut(
    examples: Sequence[Example], key: Key, labels: Labels, chosen_of: Callable[[str, Sequence[float]], range]
) -> list[bool]:
    """True for each chosen example: `chosen_of` gives a range of each label's texts in the order of their positions.

    A text with several labels, or a group of texts, counts for the rarest of its labels.
    """
    positions = [position_of(key(example)) for example in examples]
    frequency = Counter(label for example in examples for label in labels(example))
    rarest: dict[float, tuple[int, str]] = {}
    for position, example in zip(positions, examples, strict=True):
        counted = [(frequency[label], str(label)) for label in labels(example)]
        rarest[position] = min([*counted, *([rarest[position]] if position in rarest else [])], default=(0, ""))
    strata: dict[tuple[int, str], list[float]] = {}
    for position in sorted(rarest):
        strata.setdefault(rarest[position], []).append(position)
    chosen = {texts[place] for (_, label), texts in strata.items() for place in chosen_of(label, texts)}
    return [position in chosen for position in positions]


def _number_below(border: float, positions: Sequence[float], *, step: float) -> int:
    """The number of a label's texts below a border between two parts, each of which has the share `step`.

    It is the number of the sorted `positions` below the border, so that a text stays where it is when the table grows.
    If a part would then have over a fifth more or fewer texts than its share, the nearest number within a fifth is
    used instead. For a label with less than half a text per part, the positions decide alone.

    Example: of 10 texts, 2 lie below 0.2, 4 below 0.4, whatever their hashes are; of 1,000, from 160 to 240 below 0.2.
    """
    wanted, slack = border * len(positions), 0.2 * step * len(positions)
    least, most = math.ceil(wanted - slack - _ROUNDING), math.floor(wanted + slack + _ROUNDING)
    if least > most:
        least = most = math.floor(wanted + 0.5)
    number = bisect_left(positions, border)
    return number if step * len(positions) < 0.5 else min(max(number, least), most)


def divided(
    examples: Sequence[Example], is_valid: Sequence[bool], *, remedy: str
) -> tuple[list[Example], list[Example]]:
    """Training and development set."""
    train = [example for example, chosen in zip(examples, is_valid, strict=True) if not chosen]
    valid = [example for example, chosen in zip(examples, is_valid, strict=True) if chosen]
    if not train or not valid:
        raise ValueError(
            f"{examples[0].path}: of {len(examples):,} rows, none is left for the "
            f"{'training' if not train else 'development'} set. {remedy}"
        )
    return train, valid


logger = logging.getLogger(__name__)

VALID_SHARE = 0.1
NUM_SAMPLES, COVERAGE, SEED = 1000, 0.95, 1  # for the bootstrap
NUM_HARDEST = 20  # examples with the highest loss that a report lists
_MOST_COLUMNS = 20  # columns that a warning names
_LOOKED_AT = 1_000  # rows that are checked for the layouts of other programs
_MOST_CHARACTERS = 120  # characters of a text in a report
_COLUMNS = ("text_column", "text_pair_column", "label_column", "id_column", "group_column")
_RECORDED = (*_COLUMNS, "delimiter", "fold")
_SPLITS = ("train", "valid", HELD_OUT, "test")
SIZES: tuple[tuple[float, Training], ...] = (  # the grid for fewer examples than this number
    (1_000, Training(batches=(16,), epochs=20)),
    (10_000, Training(num_seeds=3)),
    (100_000, Training(batches=(32,), epochs=5, num_seeds=3)),
    (float("inf"), Training(lrs=("1e-5", "3e-5"), batches=(32,), epochs=3, num_seeds=3)),
)


def files(raw: Path, options: TableOptions) -> dict[str, list[Path]]:
    """`Benchmark.files`: the tables that the options name, relative to `raw`."""
    if options.train is None:
        raise ValueError("--train is missing: name the table to train on, such as --train my.csv.")
    return named_files(raw, options)


def settings(*, max_length: int, options: TableOptions) -> dict[str, Any]:
    """`Benchmark.settings`, with `labels` if an option gives them.

    Raises:
        ValueError: if the text is its own label, or if `TableKind.settings_of` refuses the options.
    """
    options = replace(options, kind=options.kind or USUAL_KIND)  # checks the options that go with that kind
    name = options.own_kind
    plain = {item: getattr(options, item) for item in _RECORDED}
    share = options.valid_share if options.fold else options.valid_share or VALID_SHARE
    given_names = list(options.label_names) if options.label_names else None
    recorded: dict[str, Any] = {
        **plain,
        "kind": name,
        "max_length": max_length,
        "text_column": options.text_column or "text",
        "label_column": list(options.label_column or ("label",)),
        "valid_share": None if options.valid else share,
        **({"decimal": options.decimal} if options.decimal == "," else {}),
        **({"labels": list(options.labels)} if options.labels else {}),
        **({"label_names": given_names} if "label_names" in KINDS[name].shared_options else {}),
        **options.recorded(),
    }
    kind = type(table_kind(recorded))
    recorded |= kind.settings_of(options, max_length=max_length)
    recorded = {item: value for item, value in recorded.items() if value is not None or item not in kind.of_table}
    if recorded["text_column"] in recorded["label_column"]:
        raise ValueError(
            f"--text-column and --label-column both name {recorded['text_column']!r}: the label would be in the text. "
            "Name two columns."
        )
    return recorded


def records(
    files: Files, options: TableOptions, settings: Mapping[str, Any]
) -> tuple[dict[str, list[Example]], dict[str, Any]]:
    """`Benchmark.records`. Without --valid, a development set is cut from the training table."""
    reading = table_kind(settings)
    for (path,) in files.values():
        reading.check_name(path)
    of_table = reading.settings_of_table(files["train"][0])
    settings = {**settings, **of_table}
    reading = table_kind(settings)
    tables = {split: _rows(path, reading) for split, (path,) in files.items()}
    reading = reading.with_numbers(files["train"][0], tables["train"], is_train=True)
    named: set[str] = set()
    splits = reading.unified(
        {split: _read(path, tables[split], reading, split=split, named=named) for split, (path,) in files.items()}
    )
    table = splits["train"]
    if "valid" not in splits:
        try:
            splits |= _cut_table(table, reading, options)
        except ValueError:
            reading.discover(table, table)  # names the column if it holds no labels, which is then the reason
            raise
    discovered = {**of_table, **reading.discover(table, splits["train"])}
    _report(splits, table_kind({**settings, **discovered}))
    return {name: splits[name] for name in sorted(splits, key=_SPLITS.index)}, discovered


def training(prepared: Prepared) -> Training:
    """`Benchmark.training`, by the size of the data."""
    num_examples = len(prepared.split("train"))
    by_size = next(training for below, training in SIZES if num_examples < below)
    values: Any = table_kind(prepared.settings).grid()
    return replace(by_size, **values)


def details(prepared: Prepared, part: PreparedSplit, outcome: Outcome) -> dict[str, Any]:
    """`Benchmark.further`: intervals, baseline, the kind's tables (`kinds/outputs.Outcome`), hard examples."""
    if outcome.measure is None:
        return {}
    return {
        "num_examples": outcome.num_examples,
        "intervals": intervals(outcome.measure, outcome.num_examples),
        "not_measured": list(outcome.not_measured),
        "baseline": dict(outcome.baseline),
        **outcome.tables,
        "hardest": _hardest(prepared, part, outcome),
    }


def _hardest(prepared: Prepared, split: PreparedSplit, outcome: Outcome) -> list[dict[str, Any]]:
    """The examples with the highest loss, the highest first: their id, line, text, label, prediction and loss."""
    if outcome.losses is None:
        return []
    order = np.argsort(-outcome.losses, kind="stable")[:NUM_HARDEST].tolist()
    texts = shown_texts(prepared, split, order, most=_MOST_CHARACTERS)
    chosen = set(order)
    rows = {
        index: {"id": record["id"], "line": record["line"], "label": entry["label"], "prediction": entry["prediction"]}
        for index, (record, entry) in enumerate(zip(split.records(), outcome.entries(), strict=True))
        if index in chosen
    }
    return [
        {**rows[index], "text": text, "loss": float(outcome.losses[index])}
        for index, text in zip(order, texts, strict=True)
    ]


def _rows(path: Path, kind: TableKind) -> list[Row]:
    """The rows of a table."""
    rows = list(kind.rows(path))
    if not rows:
        raise ValueError(f"{path} has no rows: the table is empty or holds a header only.")
    columns = {
        "text_column": str(kind.settings["text_column"] or "tokens"),
        "label_columns": kind.settings["label_column"],
    }
    for row in rows[:_LOOKED_AT]:
        check_layout(row, **columns)
    return rows


def _leave_out_marked(path: Path, rows: list[Row], kind: TableKind, *, split: str) -> list[Row]:
    """Leave out rows whose label is -1, which means no label; keep all rows of a test table without any label."""
    marked = [row for row in rows if kind.is_marked(row)]
    if marked and len(marked) < len(rows):
        logger.warning(
            f"{marked[0].where}: the label is -1, which means no label: {len(marked):,} of {len(rows):,} rows of the "
            "table have no label and are left out."
        )
        return [row for row in rows if not kind.is_marked(row)]
    if marked and split != "test":
        raise ValueError(
            f"{path}: every row has the label -1, which means no label. Only a test table may have no labels: name "
            f"another table by --{split}."
        )
    if marked:
        logger.warning(
            f"{path}: every row has the label -1, which means no label: the rows are predicted, not measured"
        )
    return rows


def _read(path: Path, rows: list[Row], kind: TableKind, *, split: str, named: set[str]) -> list[Example]:
    """The examples of a table.

    Columns that are not read are logged, and added to the columns that were `named` before.
    """
    read = {str(kind.settings["group_column"])}  # only the training set reads it
    rows = [row._replace(values=NotedValues(row.values, read)) for row in rows]
    if split != "train":
        kind = kind.with_numbers(path, rows, is_train=False)
    rows = _leave_out_marked(path, rows, kind, split=split)
    is_without = [kind.is_marked(row) or not kind.is_labelled(row) for row in rows]
    is_labelled = split != "test" or _check_test_labels(rows, is_without, kind)
    examples, faults = [], []
    for row in rows:
        try:
            examples.append(kind.read(row, is_labelled=is_labelled))
        except ValueError as error:
            faults.append(error)
    if faults:
        others = f" {len(faults):,} of {len(rows):,} rows have a fault." if 1 < len(faults) < len(rows) else ""
        raise ValueError(f"{faults[0]}{others}") from faults[0]
    unread = [name for name in dict.fromkeys(name for row in rows for name in row.values) if name not in read | named]
    if unread:
        named.update(unread)
        more = f" and {len(unread) - _MOST_COLUMNS:,} more" if len(unread) > _MOST_COLUMNS else ""
        shown = ", ".join(name or "'' (no name)" for name in unread[:_MOST_COLUMNS])
        logger.warning(f"{path}: columns not read: {shown}{more}")
    id_column, group_column = kind.settings["id_column"], kind.settings["group_column"]
    if id_column is not None:
        remedy = f"correct one of the two in the column {id_column!r}, or leave --id-column out"
        places = ((example.where, example) for example in examples)
        examples = list(with_unique_ids(places, id_of=lambda example: example.id, remedy=remedy))
    return examples if group_column is None or split != "train" else _with_groups(examples, rows, group_column)


def _check_test_labels(rows: Sequence[Row], is_without: Sequence[bool], kind: TableKind) -> bool:
    """True if a test table has labels. All rows must have one, or none.

    If no row has a label, there may be a column `Label` where the training table has `label`. Such a column is refused,
    because it was meant.
    """
    without = [row for row, lacks in zip(rows, is_without, strict=True) if lacks]
    if not without:
        return True
    if len(without) < len(rows):
        raise ValueError(
            f"{without[0].where}: the label is empty, and {len(rows) - len(without):,} of {len(rows):,} rows of the "
            "test table have one. Fill in or leave out the rows without a label, or leave the whole column out."
        )
    for column in kind.settings["label_column"]:
        other = None if column in rows[0].values else meant(column, rows[0].values)
        if other is not None:
            raise ValueError(
                f"{rows[0].where}: the column {other!a} differs from {column!r} of --label-column only in "
                "spelling. Give both the same name, or leave the column out if the rows have no labels."
            )
    return False


def _with_groups(examples: Sequence[Example], rows: Sequence[Row], group_column: str) -> list[Example]:
    """The examples with the groups of their rows; warns of groups that only differ in spelling."""
    values = (row.value(group_column, option="--group-column") for row in rows)
    grouped = [
        example if is_missing(value) else example._replace(group=str(value).strip())
        for example, value in zip(examples, values, strict=True)
    ]
    groups: dict[str, str] = {}
    for example in grouped:
        if example.group:
            groups.setdefault(example.group, example.where)
    warn_of_look_alikes(groups, what=f"group of {group_column!r}")
    return grouped


def _cut_table(table: Sequence[Example], kind: TableKind, options: TableOptions) -> dict[str, list[Example]]:
    """Cut one table into training and development set, by groups if there are any, else by texts.

    With a fold and a share, the fold is held out, and the share is cut from the rest.
    """
    table = _group_pairs(table, kind)

    def key(example: Example) -> Sequence[str]:
        return (example.group,) if example.group else kind.split_key(example)

    grouped = ""
    if any(example.group for example in table):
        grouped = (
            f" The rows form {len({key(example) for example in table}):,} groups: another --group-column has more."
        )
    parts: dict[str, list[Example]] = {}
    train = table
    if options.fold is not None:
        number, total = options.part()
        chosen = cut_fold(table, number=number, total=total, key=key, labels=kind.split_labels)
        remedy = f"There are too few different texts for {total} folds: give a smaller number."
        name = HELD_OUT if options.valid_share else "valid"
        train, parts[name] = divided(table, chosen, remedy=remedy + grouped)
    if "valid" not in parts:
        share = options.valid_share or VALID_SHARE
        chosen = cut_share(train, share=share, key=key, labels=kind.split_labels)
        remedy = "Give another --valid-share, or a table for --valid."
        train, parts["valid"] = divided(train, chosen, remedy=remedy + grouped)
    return {"train": list(train), **parts}


def _group_pairs(table: Sequence[Example], kind: TableKind) -> Sequence[Example]:
    """Put pairs into groups by a text that most pairs share with others, such as questions with several answers."""
    is_pair = kind.settings["text_pair_column"] is not None and len(kind.split_key(table[0])) == 2
    if kind.settings["group_column"] is not None or not is_pair:
        return table
    shared = shared_sides(table)
    side = shared.index(max(shared))
    is_grouped = shared[side] > len(table) / 2
    for number in (side, 1 - side):
        column = kind.settings[("text_column", "text_pair_column")[number]]
        fact = f"{table[0].path}: {shared[number]:,} of {len(table):,} rows have the same {column!r} as another row"
        if number == side and is_grouped:
            logger.warning(f"{fact}, and are on the same side of the cut, as by --group-column {column}.")
        elif shared[number]:
            logger.warning(
                f"{fact}, and may be in the training set where the other is in the development set: --group-column "
                f"{column} keeps them together."
            )
    return [example._replace(group=example.texts[side]) for example in table] if is_grouped else table


def _report(splits: dict[str, list[Example]], kind: TableKind) -> None:
    """Log the sizes of the splits, and warn of suspicious rows."""
    for name, examples in splits.items():
        warn_of_duplicates(examples)
        if name != "train":
            warn_of_overlap(splits["train"], examples, split=name)
        logger.info(f"{name}: {len(examples):,} examples of {examples[0].path}")
    for remark in kind.remarks_on_rows(splits["train"]):
        logger.warning(remark)


def intervals(
    measure: Callable[[NDArray[np.float64]], dict[str, float]], num_examples: int
) -> dict[str, tuple[float, float]]:
    """The interval of each metric by the percentile bootstrap (Efron & Tibshirani 1993, chapter 13), reproducibly.

    A sample is drawn from the examples with replacement, and has as many. Each metric is computed on 1,000 samples, and
    its interval holds the middle 95 % of the values. It shows how much the metric depends on the examples in the split,
    not how much it depends on the seed of the training.

    `measure` computes the metrics for weights (N,), the number of times that each example counts.
    """
    rng = np.random.default_rng(SEED)
    samples: dict[str, list[float]] = {}
    for _ in range(NUM_SAMPLES):
        drawn = rng.integers(num_examples, size=num_examples)
        weights = np.bincount(drawn, minlength=num_examples).astype(np.float64)
        for name, value in measure(weights).items():
            if not math.isnan(value):  # it is if the sample has no example of a label
                samples.setdefault(name, []).append(value)
    tail = 50 * (1 - COVERAGE)
    return {
        name: (float(np.percentile(values, tail)), float(np.percentile(values, 100 - tail)))
        for name, values in samples.items()
    }


TASKS = {
    "custom": Benchmark(
        name="custom", rules=OWN, files=files, settings=settings, records=records, training=training, further=details
    )
}
