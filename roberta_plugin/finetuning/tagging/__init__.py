"""Tagging: one tag per word, such as the entities of CoNLL-2003 and WNUT-17.

tasks           the rows: a prepared folder with one example per window, metrics, files that conlleval reads
reader          CoNLL columns or JSON Lines       -> sentences of words with tags, and where they are
labels          tags of a file                    -> labels of the model, in IOB2
"""
