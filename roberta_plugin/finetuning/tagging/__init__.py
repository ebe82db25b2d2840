"""Tagging: one tag per word, such as the entities of CoNLL-2003 and WNUT-17.

tasks           tags of files -> the labels of the model, in IOB2; the rows, files that conlleval reads
"""
