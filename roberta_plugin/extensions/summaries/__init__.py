"""The sentences that sum a document up: CNN/DailyMail, and tables of documents.

kind               a text -> the sentences that sum it up
documents          a split of documents -> texts and labels; the choice of sentences, ROUGE
layout             documents in windows; where their sentences begin
benchmarks         CNN/DailyMail, and other documents with summaries
dataset            batches
head               logits of sentences
hub                methods of RobertaHub
options            options of roberta prepare and of the scoring
training           head, batches, loss
training_options   options of fairseq-train
"""

from roberta_plugin.registry import BenchmarkFamily, Extension, HeadEntry, KindEntry, TrainingEntry

EXTENSION = Extension(
    "summaries",
    __name__,
    position=70,
    moved={
        "finetuning.kinds.summary": ".kind",
        "finetuning.kinds.documents": ".documents",
        "finetuning.benchmarks.summaries": ".benchmarks",
        "finetuning.layouts.sentences": ".layout",
    },
    kinds={
        "summary": KindEntry(
            ".kind:Summary",
            "text",
            training=".training:SummaryTraining",
            options=("num_sentences", "length_share", "no_trigram_blocking"),
        )
    },
    heads={"sentence": HeadEntry(".head:SentenceHead", ".hub:predict")},
    hub_methods={"sentence_logits": ".hub:sentence_logits"},
    trainings={
        "roberta_summarization": TrainingEntry(
            ".training_options:SummarizationConfig", ".training_options:SummarizationCriterionConfig"
        )
    },
    predict_options={"summaries": ".options:SummaryPredictOptions"},
    benchmarks={
        "summaries": BenchmarkFamily(
            ("summaries", "cnn_dailymail"),
            ".benchmarks:TASKS",
            ".options:SummariesOptions",
        )
    },
)
