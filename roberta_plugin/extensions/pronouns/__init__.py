"""Competing phrases in place of a pronoun: WNLI, WSC, WinoGrande.

kind               a sentence with a pronoun -> the phrase that it means; noun phrases
hub                a method of RobertaHub
schemas            rows of official files -> pronouns and phrases
benchmarks         WNLI, WSC, WinoGrande
options            options of their preparation
training           scores of phrases, and the loss
training_options   options of fairseq-train
"""

from roberta_plugin.registry import BenchmarkFamily, CriterionOptions, Extension, KindEntry

EXTENSION = Extension(
    "pronouns",
    __name__,
    position=30,
    moved={"finetuning.kinds.phrase_ranking": ".kind", "finetuning.benchmarks.pronouns": ".schemas"},
    kinds={
        "phrase_ranking": KindEntry(
            ".kind:PhraseRanking",
            "text [candidates]",
            training=".training:PhraseRankingTraining",
            task_kind="pronoun",
        )
    },
    hub_methods={"disambiguate_pronoun": ".hub:disambiguate_pronoun"},
    criterion_options={"phrases": CriterionOptions("roberta_sentence_prediction", ".training_options:PhraseOptions")},
    benchmarks={
        "pronouns": BenchmarkFamily(
            ("WNLI", "WSC", "WinoGrande"),
            ".benchmarks:TASKS",
            ".options:WinoGrandeOptions",
            leaderboards=("glue", "superglue"),
        )
    },
)
