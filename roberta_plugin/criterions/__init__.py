"""Criterions: from a model and a batch to a loss, its denominator and what is logged.

masked_lm             pretraining
sentence_prediction   GLUE: classification, regression, ranking
squad2                spans and answerability
race                  multiple choice
tagging               a tag per word
summarization         sentences to choose
embedding             vectors of texts that belong together
validation            outputs of a validation, of all ranks -> the metrics of the kind
metrics               sums from all workers -> the figures of the log
base                  what they share
"""

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
from roberta_plugin.criterions import embedding as embedding
from roberta_plugin.criterions import masked_lm as masked_lm
from roberta_plugin.criterions import race as race
from roberta_plugin.criterions import sentence_prediction as sentence_prediction
from roberta_plugin.criterions import squad2 as squad2
from roberta_plugin.criterions import summarization as summarization
from roberta_plugin.criterions import tagging as tagging
