"""Answers in a passage: SQuAD 1.1 and 2.0, and tables of questions.

kind               question, context -> a span of the context
questions          questions about passages -> a split of windows; raw outputs -> the best answers
answers            right answers as data sets write them -> texts and places
benchmarks         SQuAD 1.1 and 2.0
head               logits of begin, end and existence
hub                methods of RobertaHub
metrics            the official metrics of SQuAD
options            options of roberta prepare and of the scoring
training           the loss
training_options   options of fairseq-train
"""

from roberta_plugin.registry import BenchmarkFamily, Extension, HeadEntry, KindEntry, TrainingEntry

EXTENSION = Extension(
    "spans",
    __name__,
    position=50,
    moved={
        "finetuning.kinds.question_answering": ".kind",
        "finetuning.kinds.answers": ".answers",
        "finetuning.kinds.questions": ".questions",
        "finetuning.benchmarks.squad": ".benchmarks",
    },
    kinds={
        "question_answering": KindEntry(
            ".kind:QuestionAnswering",
            "question context",
            training=".training:SpanTraining",
            options=("null_threshold", "top_k"),
            numbers=("threshold", "null_threshold"),
            is_own=True,
            shared_options=("threshold",),
            option_words={
                "text_column": "context by default",
                "text_pair_column": "the question",
                "label_column": "answer by default",
                "threshold": "of no answer",
                "top_k": "candidates for each question",
            },
        )
    },
    heads={"span": HeadEntry(".head:SpanHead", ".hub:predict")},
    hub_methods={"span_outputs": ".hub:span_outputs"},
    trainings={"squad2": TrainingEntry(".training_options:Squad2Config", ".training_options:Squad2CriterionConfig")},
    predict_options={"spans": ".options:SpanPredictOptions"},
    benchmarks={
        "squad": BenchmarkFamily(
            ("squad1", "squad2"),
            ".benchmarks:TASKS",
            ".options:SquadOptions",
        )
    },
)
