"""Tables of your own, cut into training and development set (examples/README.custom_task.md).

benchmark   tables -> examples of a kind; facts for reports
options     the options that all kinds share; `CustomOptions` has those of the kinds, too
"""

from roberta_plugin.registry import BenchmarkFamily, Extension

EXTENSION = Extension(
    "own_tables",
    __name__,
    position=90,
    moved={"finetuning.benchmarks.custom": ".benchmark"},
    benchmarks={
        "custom": BenchmarkFamily(
            ("custom",),
            ".benchmark:TASKS",
            ".options:CustomOptions",
        )
    },
)
