"""Studies: variants of pretraining with seeds at an equal budget, compared as in the paper's Tables 1 to 3.

command       the verb `roberta study`
study_file    the study file      -> variants, seeds, budget, probes; paper.yaml has the paper's rows
plan          variants, data      -> options, updates, tokens, FLOPs; unequal budgets are refused
study         a study file        -> sweep, perplexity, fine-tuning, report; resumes
report        values by seed      -> report.md, results.json; pairs by Games and Howell
"""

from roberta_plugin.registry import Extension, VerbEntry

SUMMARY = "compare variants of pretraining, with seeds and tests, beside the paper's tables"
EXTENSION = Extension(
    "studies",
    __name__,
    position=200,
    moved={
        "experiments.studies": "",
        "experiments.studies.study": ".study",
    },
    verbs={"study": VerbEntry(SUMMARY, ".command:study")},
)
