"""Vectors of texts, which are near each other if the texts mean the same.

kind               a text -> a vector
prompts            what some models read in front of a text
similarity         vectors -> cosines, and the ranks of right texts
dataset            batches
hub                methods of RobertaHub
table_options      options of tables of your own, and of predictions
training           the losses
training_options   options of fairseq-train
"""

from roberta_plugin.registry import Extension, KindEntry, TrainingEntry

EXTENSION = Extension(
    "embeddings",
    __name__,
    position=80,
    moved={"finetuning.kinds.embedding": ".kind"},
    kinds={
        "embedding": KindEntry(
            ".kind:Embedding",
            "text [text_pair]",
            training=".training:EmbeddingTraining",
            options=("pooling", "normalize", "prompt_name"),
            is_own=True,
            shared_options=("decimal",),
            option_words={"text_pair_column": "the text that is near", "label_column": "a score"},
        )
    },
    hub_methods={"embed": ".hub:embed"},
    table_options={"embeddings": ".table_options:EmbeddingTableOptions"},
    predict_options={"embeddings": ".table_options:EmbeddingPredictOptions"},
    trainings={
        "roberta_embedding": TrainingEntry(
            ".training_options:RobertaEmbeddingConfig", ".training_options:RobertaEmbeddingCriterionConfig"
        )
    },
)
