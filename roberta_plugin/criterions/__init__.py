"""Criterions: from a model and a batch to a loss, its denominator and what is logged."""

from . import masked_lm as masked_lm
from . import race as race
from . import sentence_prediction as sentence_prediction
from . import squad2 as squad2
