"""Answers in a passage: SQuAD 1.1 and 2.0, and tables of questions.

head               logits of begin, end and existence
hub                methods of RobertaHub
training           the loss
training_options   options of fairseq-train
"""

from roberta_plugin.registry import BenchmarkFamily, Extension, HeadEntry, KindEntry, TrainingEntry

EXTENSION = Extension(
    "spans",
    __name__,
    position=50,
    kinds={
        "question_answering": KindEntry(
            "roberta_plugin.finetuning.kinds.question_answering:QuestionAnswering",
            "question context",
            training=".training:SpanTraining",
            options=("null_threshold", "top_k"),
            is_own=True,
            own_options=("threshold",),
        )
    },
    heads={"span": HeadEntry(".head:SpanHead", ".hub:predict")},
    hub_methods={"span_outputs": ".hub:span_outputs"},
    trainings={"squad2": TrainingEntry(".training_options:Squad2Config", ".training_options:Squad2CriterionConfig")},
    benchmarks={
        "squad": BenchmarkFamily(
            ("squad1", "squad2"),
            "roberta_plugin.finetuning.benchmarks.squad:TASKS",
            "roberta_plugin.finetuning.options:SquadOptions",
        )
    },
)
