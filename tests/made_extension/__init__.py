"""An extension of the tests: a kind of task, a head and benchmarks for tests of the trunk, which can rely on no other.

It is registered in every process of the tests (`tests/conftest.py`), as a package of somebody else's would be.

kind       a text or a pair of texts -> one of several labels; its loss
head       features -> classes for each token; scores of places
benchmark  JSON Lines -> examples; options
training_options   options of the fairseq task roberta_made
"""

from roberta_plugin.registry import BenchmarkFamily, Extension, HeadEntry, KindEntry, TrainingEntry

EXTENSION = Extension(
    "made",
    __name__,
    position=300,
    kinds={
        "made": KindEntry(
            ".kind:Made",
            "text [text_pair]",
            training=".kind:MadeTraining",
            numbers=("made_limit",),
            errors=("made_error",),
        ),
        "made_other": KindEntry(".kind:MadeOther", "text [text_pair]", training=".kind:MadeOtherTraining"),
    },
    trainings={"roberta_made": TrainingEntry(".training_options:MadeConfig")},
    heads={
        "made_token": HeadEntry(".head:MadeTokenHead", ".head:predict"),
        "made_place": HeadEntry(".head:MadePlaceHead"),
    },
    benchmarks={
        "made": BenchmarkFamily(("made", "made-too"), ".benchmark:TASKS", ".benchmark:MadeOptions"),
        "made_plain": BenchmarkFamily(("made-plain", "made-other"), ".benchmark:PLAIN"),
    },
)
