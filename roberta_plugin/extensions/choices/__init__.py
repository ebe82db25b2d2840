"""Multiple choice: RACE, COPA, ReCoRD, CommonsenseQA.

kind            a context, perhaps a question, and options -> the right option
benchmarks      RACE, and sets of questions in JSON Lines
sentences       COPA, ReCoRD, CommonsenseQA
options         options of their preparation
table_options   options of tables of your own
training        the loss
"""

from roberta_plugin.registry import BenchmarkFamily, Extension, KindEntry, TrainingEntry

EXTENSION = Extension(
    "choices",
    __name__,
    position=40,
    moved={"finetuning.kinds.multiple_choice": ".kind", "finetuning.benchmarks.race": ".benchmarks"},
    kinds={
        "multiple_choice": KindEntry(
            ".kind:MultipleChoice",
            "context question options",
            training=".training:MultipleChoiceTraining",
            is_own=True,
            shared_options=("labels",),
            option_words={"text_pair_column": "the question"},
        )
    },
    table_options={"choices": ".table_options:ChoiceTableOptions"},
    trainings={"race": TrainingEntry(criterion_options="roberta_plugin.criterions.finetuning_options:LabelsConfig")},
    benchmarks={
        "race": BenchmarkFamily(
            ("race", "multiple_choice"),
            ".benchmarks:TASKS",
            ".options:RaceOptions",
        ),
        "choices": BenchmarkFamily(
            ("COPA", "ReCoRD", "CommonsenseQA"), ".sentences:TASKS", leaderboards=("superglue",)
        ),
    },
)
