"""Checkpoints -> models; `roberta_plugin/checkpoint_files.py` reads the files.

building   a checkpoint -> its model, from an allow-list of names and options
fitting    heads, sizes and segments that only one of checkpoint and model has
names      names of parameters and options, in files of any year
"""
