"""Tasks: the options, the vocabulary and the datasets of one kind of training.

masked_lm             pretraining                  masked_lm_options   its options, and their checks
sentence_prediction   GLUE
squad2                spans
race                  multiple choice
tagging               a tag per word
summarization         sentences to choose
finetuning            what the last four share     finetuning_options  their options
block_task            what all tasks share
epoch_iterator        batches of an epoch for each rank, with the position kept in blocks
fairseq_options       fairseq's own options: refused values, and options without effect here
"""

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
from roberta_plugin.tasks import masked_lm as masked_lm
from roberta_plugin.tasks import race as race
from roberta_plugin.tasks import sentence_prediction as sentence_prediction
from roberta_plugin.tasks import squad2 as squad2
from roberta_plugin.tasks import summarization as summarization
from roberta_plugin.tasks import tagging as tagging
