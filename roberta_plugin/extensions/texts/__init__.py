"""Labels and numbers of texts and pairs: classification, several labels, regression; GLUE, XNLI, SuperGLUE.

Pages: examples/README.benchmarks.md, examples/README.custom_task.md.

classification   a text or a pair -> a label, perhaps by a threshold; calibration of probabilities
multi_label      a text or a pair -> any number of labels
regression       a text or a pair -> a number; the pairs of a question -> which is right (QNLI)
glue  superglue  xnli   official files -> examples
options          options of tables and of predictions
training         the losses
"""

from roberta_plugin.registry import BenchmarkFamily, Extension, KindEntry

EXTENSION = Extension(
    "texts",
    __name__,
    position=20,
    moved={
        "finetuning.kinds.classification": ".classification",
        "finetuning.kinds.multi_label": ".multi_label",
        "finetuning.kinds.regression": ".regression",
        "finetuning.benchmarks.glue": ".glue",
        "finetuning.benchmarks.superglue": ".superglue",
    },
    kinds={
        "classification": KindEntry(
            ".classification:Classification",
            "text [text_pair]",
            training=".training:ClassificationTraining",
            options=("threshold", "temperature"),
            numbers=("threshold", "temperature"),
            is_own=True,
            shared_options=("labels", "label_names", "class_weights", "long_texts", "threshold"),
            option_words={"threshold": "of --positive-label"},
            own_aliases=("pair",),
        ),
        "multi_label": KindEntry(
            ".multi_label:MultiLabel",
            "text [text_pair]",
            training=".training:MultiLabelTraining",
            options=("threshold",),
            numbers=("threshold",),
            is_own=True,
            shared_options=("labels", "label_names", "label_columns", "class_weights", "long_texts", "threshold"),
            option_words={"label_column": "a list of labels, or a column of 0 and 1 for each"},
        ),
        "regression": KindEntry(
            ".regression:Regression",
            "text [text_pair]",
            training=".training:RegressionTraining",
            is_own=True,
            errors=("mae", "rmse"),
            shared_options=("long_texts", "decimal"),
        ),
        "pair_ranking": KindEntry(
            ".regression:PairRanking",
            "text [text_pair]",
            training=".training:PairRankingTraining",
            task_kind="regression",
        ),
    },
    table_options={"texts": ".options:TextTableOptions"},
    predict_options={"texts": ".options:TextPredictOptions"},
    benchmarks={
        "glue": BenchmarkFamily(
            ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "QNLI-ranking", "RTE"),
            ".glue:TASKS",
            ".options:GlueOptions",
            leaderboards=("glue",),
        ),
        "xnli": BenchmarkFamily(
            ("XNLI",),
            ".xnli:TASKS",
            ".options:XnliOptions",
        ),
        "superglue": BenchmarkFamily(
            ("BoolQ", "CB", "SuperRTE", "WiC", "MultiRC"),
            ".superglue:TASKS",
            leaderboards=("superglue",),
        ),
    },
)
