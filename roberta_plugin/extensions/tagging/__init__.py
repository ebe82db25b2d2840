"""A tag for each word, and entities: CoNLL-2003, WNUT-17, and other tagged words.

dataset            batches
head               classes of tokens
hub                methods of RobertaHub
table_options      options of tables of your own
training           the loss
training_options   options of fairseq-train
"""

from roberta_plugin.registry import BenchmarkFamily, Extension, HeadEntry, KindEntry, TrainingEntry

EXTENSION = Extension(
    "tagging",
    __name__,
    position=60,
    kinds={
        "tagging": KindEntry(
            "roberta_plugin.finetuning.kinds.tagging:Tagging",
            "text or words",
            training=".training:TaggingTraining",
            options=("valid_sequences",),
            is_own=True,
            own_options=("labels", "label_names"),
        )
    },
    heads={"token": HeadEntry(".head:TokenHead", ".hub:predict")},
    hub_methods={"token_logits": ".hub:token_logits"},
    own_options={"tagging": ".table_options:TaggingTableOptions"},
    trainings={
        "roberta_tagging": TrainingEntry(
            ".training_options:RobertaTaggingConfig", "roberta_plugin.criterions.finetuning_options:LabelsConfig"
        )
    },
    benchmarks={
        "tagging": BenchmarkFamily(
            ("conll2003", "wnut17", "tagging"),
            "roberta_plugin.finetuning.benchmarks.tagging:TASKS",
            "roberta_plugin.finetuning.options:TaggingOptions",
        )
    },
)
