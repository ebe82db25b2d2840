"""The paper's rows are found by name."""

import pytest

from roberta_plugin.experiments.studies.paper_tables import PERPLEXITY, TABLES, paper_row
from roberta_plugin.finetuning.benchmarks import TASKS


def test_columns_are_tasks_or_perplexity():
    columns = {column for rows in TABLES.values() for row in rows.values() for column in row}
    assert columns - {PERPLEXITY} <= set(TASKS)
    assert PERPLEXITY in columns


def test_a_row_is_found_by_table_and_name():
    assert paper_row("table3/2K") == {"ppl": 3.68, "MNLI": 85.2, "SST-2": 92.9}
    with pytest.raises(ValueError, match="no row 'table1/dynamical': there are table1/reference, table1/static"):
        paper_row("table1/dynamical")
