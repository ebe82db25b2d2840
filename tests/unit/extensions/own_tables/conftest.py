"""Prepared folders of small tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from roberta_plugin.finetuning.options import CustomOptions
from roberta_plugin.finetuning.preparation import PrepareSettings, prepare
from roberta_plugin.finetuning.prepared import Prepared
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_tables import rows_of, write_csv, write_json_lines


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def prepare_table(tmp_path, tokenizer) -> Callable[..., Prepared]:
    """Prepare made-up rows, or those that are given, in a folder of their own."""

    def make(kind="classification", *, rows=None, **options) -> Prepared:
        rows = rows_of(kind, 60) if rows is None else rows
        is_flat = all(isinstance(value, str | int | float) for row in rows for value in row.values())
        write = write_csv if is_flat and all(row.keys() == rows[0].keys() for row in rows) else write_json_lines
        path = write(tmp_path / ("my.csv" if write is write_csv else "my.jsonl"), rows)
        if kind in ("pair", "embedding") and "pair" in rows[0]:
            options.setdefault("text_pair_column", "pair")
        chosen = CustomOptions(kind=kind, **{"train": path.name, **options})
        folder = tmp_path / f"data{len(list(tmp_path.glob('data*')))}"
        where = {"raw": tmp_path, "tokenizer": tokenizer, "output_dir": folder}
        return prepare(PrepareSettings(task="custom", max_length=64, options=chosen, **where))

    return make
