"""Tables of your own, cut into training and development set."""

from roberta_plugin.registry import BenchmarkFamily, Extension

EXTENSION = Extension(
    "own_tables",
    __name__,
    position=90,
    benchmarks={
        "custom": BenchmarkFamily(
            ("custom",),
            "roberta_plugin.finetuning.benchmarks.custom:TASKS",
            "roberta_plugin.finetuning.options:CustomOptions",
        )
    },
)
