"""A tag for each word, and entities: CoNLL-2003, WNUT-17, and other tagged words.

kind               a text or its words -> tags
entities           tags <-> entities <-> labels; raw outputs -> labels of words; entity F1
notations          tags as files write them -> tags that `entities` reads, or plain ones
files              files of tagged words -> words and tags of sentences
benchmarks         CoNLL-2003, WNUT-17, and other tagged words
layout             words -> tokens in overlapping windows, a split of them
dataset            batches
head               classes of tokens
hub                methods of RobertaHub
table_options      options of tables of your own, and of predictions
options            options of roberta prepare and of the scoring
training           the loss
training_options   options of fairseq-train
"""

from roberta_plugin.registry import BenchmarkFamily, Extension, HeadEntry, KindEntry, TrainingEntry

EXTENSION = Extension(
    "tagging",
    __name__,
    position=60,
    moved={
        "finetuning.kinds.tagging": ".kind",
        "finetuning.kinds.entities": ".entities",
        "finetuning.kinds.tagged_files": ".files",
        "finetuning.kinds.tag_notations": ".notations",
        "finetuning.benchmarks.tagging": ".benchmarks",
    },
    kinds={
        "tagging": KindEntry(
            ".kind:Tagging",
            "text or words",
            training=".training:TaggingTraining",
            options=("valid_sequences",),
            is_own=True,
            shared_options=("labels", "label_names"),
            option_words={
                "train": "no .csv, but CoNLL columns",
                "text_column": "the words, tokens by default",
                "label_column": "tags by default",
            },
        )
    },
    heads={"token": HeadEntry(".head:TokenHead", ".hub:predict")},
    hub_methods={"token_logits": ".hub:token_logits"},
    table_options={"tagging": ".table_options:TaggingTableOptions"},
    predict_options={"tagging": ".table_options:TaggingPredictOptions"},
    trainings={
        "roberta_tagging": TrainingEntry(
            ".training_options:RobertaTaggingConfig", "roberta_plugin.criterions.finetuning_options:LabelsConfig"
        )
    },
    benchmarks={
        "tagging": BenchmarkFamily(
            ("conll2003", "wnut17", "tagging"),
            ".benchmarks:TASKS",
            ".options:TaggingOptions",
        )
    },
)
