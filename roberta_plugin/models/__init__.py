"""Models: config -> encoder -> heads; only config.py, roberta.py and what loads checkpoints for use know fairseq."""

from . import roberta as roberta
