"""A trained model in a few lines of Python: text in; ids, features, filled masks and predictions out.

    from roberta_plugin.hub import RobertaHub

    hub = RobertaHub.from_pretrained("runs/demo/checkpoints")
    hub.fill_mask("The method returns a <mask> of strings.")

interface   RobertaHub, with the calls of fairseq's RoBERTa hub interface
fill_mask   answers to `<mask>`
"""

from roberta_plugin.conversion.run_folders import find_checkpoint, find_dictionary, find_tokenizer
from roberta_plugin.hub.fill_mask import MASK, Filling
from roberta_plugin.hub.interface import RobertaHub

__all__ = ["MASK", "Filling", "RobertaHub", "find_checkpoint", "find_dictionary", "find_tokenizer"]
