"""A trained model in a few lines of Python: texts -> ids, features, filled masks and predictions.

    from roberta_plugin.hub import RobertaHub

    hub = RobertaHub.from_pretrained("runs/demo/checkpoints")
    hub.fill_mask("The method returns a <mask> of strings.")

interface   RobertaHub, with the calls of fairseq's RoBERTa hub interface
core        ids of many sequences -> predictions and features
texts       texts <-> ids, with <mask>; tokens -> words
scoring     sentences -> their acceptability to the model; masked batches -> accuracy and perplexity
graphs      models that another program computes, with the calls of the hub
running     the inference loop: sequences or batches -> the model's results, in order
"""

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
from roberta_plugin.conversion.model_files import find_checkpoint, find_dictionary, find_tokenizer
from roberta_plugin.data.vocabulary import MASK
from roberta_plugin.hub.interface import RobertaHub
from roberta_plugin.hub.scoring import Score
from roberta_plugin.hub.texts import Filling

__all__ = ["MASK", "Filling", "RobertaHub", "Score", "find_checkpoint", "find_dictionary", "find_tokenizer"]
