"""The numbers of the paper's Tables 1 to 3, by table, row and column; `roberta study` shows them beside its own.

Columns are named like fine-tuning tasks (`finetuning.benchmarks.TASKS`), and `ppl` is held-out perplexity. The paper
gives F1 for SQuAD and accuracy for the other tasks; medians over five seeds of fine-tuning in Tables 1 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping

TABLES: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "table1": {  # BERT base, static against dynamic masking (section 4.1)
        "reference": {"squad2": 76.3, "MNLI": 84.3, "SST-2": 92.8},
        "static": {"squad2": 78.3, "MNLI": 84.3, "SST-2": 92.5},
        "dynamic": {"squad2": 78.7, "MNLI": 84.0, "SST-2": 92.9},
    },
    "table2": {  # input formats, the first two with next-sentence prediction (section 4.2)
        "segment-pair": {"squad1": 90.4, "squad2": 78.7, "MNLI": 84.0, "SST-2": 92.9, "race": 64.2},
        "sentence-pair": {"squad1": 88.7, "squad2": 76.2, "MNLI": 82.9, "SST-2": 92.1, "race": 63.0},
        "full-sentences": {"squad1": 90.4, "squad2": 79.1, "MNLI": 84.7, "SST-2": 92.5, "race": 64.8},
        "doc-sentences": {"squad1": 90.6, "squad2": 79.7, "MNLI": 84.7, "SST-2": 92.7, "race": 65.6},
    },
    "table3": {  # batches at equal numbers of passes (section 4.3)
        "256": {"ppl": 3.99, "MNLI": 84.7, "SST-2": 92.7},
        "2K": {"ppl": 3.68, "MNLI": 85.2, "SST-2": 92.9},
        "8K": {"ppl": 3.77, "MNLI": 84.6, "SST-2": 92.8},
    },
}
PERPLEXITY = "ppl"


def paper_row(name: str) -> Mapping[str, float]:
    """The row that a variant mirrors, as `table1/static`.

    Raises:
        ValueError: naming the rows that there are.
    """
    table, _, row = name.partition("/")
    if table not in TABLES or row not in TABLES[table]:
        rows = ", ".join(f"{table}/{row}" for table, rows in TABLES.items() for row in rows)
        raise ValueError(f"The paper has no row {name!r}: there are {rows}.")
    return TABLES[table][row]
