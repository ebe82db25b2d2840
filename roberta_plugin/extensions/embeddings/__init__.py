"""Vectors of texts, near each other where the texts mean the same.

dataset            batches
training           the losses
training_options   options of fairseq-train
"""

from roberta_plugin.registry import Extension, KindEntry, TrainingEntry

EXTENSION = Extension(
    "embeddings",
    __name__,
    position=80,
    kinds={
        "embedding": KindEntry(
            "roberta_plugin.finetuning.kinds.embedding:Embedding",
            "text [text_pair]",
            training=".training:EmbeddingTraining",
            options=("pooling", "normalize"),
            is_own=True,
            own_options=("decimal",),
        )
    },
    trainings={
        "roberta_embedding": TrainingEntry(
            ".training_options:RobertaEmbeddingConfig", ".training_options:RobertaEmbeddingCriterionConfig"
        )
    },
)
