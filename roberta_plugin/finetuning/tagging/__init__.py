"""Tagging: one tag per word, such as the entities of CoNLL-2003 and WNUT-17.

reader          CoNLL columns or JSON Lines       -> sentences of words with tags, and where they are
schemes         tags of IOB1, IOB2, IOBES, BILOU  <-> entities, as conlleval reads them
labels          tags of a file                    -> labels of the model, in IOB2
inputs          words of a text                   -> tokens, windows, and the position of each word
prepare         all of these                      -> a prepared folder, one example per window
sentences       a prepared split                  -> its words; outputs of windows -> one row per word
dataset         a prepared split                  -> batches with a label per token
decoding        probabilities of words            -> the most probable valid sequence of tags
metrics         labels of words                   -> entity F1, precision, recall, accuracy
predictions     labels of words                   -> a file that conlleval reads, and its report
benchmark       what `finetuning/benchmarks.py` asks of a benchmark
"""
