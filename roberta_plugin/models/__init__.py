"""Models: config -> encoder -> heads; only config.py, roberta.py and hub_interface.py know fairseq."""

from . import roberta as roberta
