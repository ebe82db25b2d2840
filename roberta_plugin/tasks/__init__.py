"""Tasks: an option group, the vocabulary and the datasets of one kind of training."""

from . import masked_lm as masked_lm
from . import race as race
from . import sentence_prediction as sentence_prediction
from . import squad2 as squad2
