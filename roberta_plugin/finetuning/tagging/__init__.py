"""Tagging: one tag per word, such as the entities of CoNLL-2003 and WNUT-17.

reader          CoNLL columns or JSON Lines       -> sentences of words with tags, and where they are
labels          tags of a file                    -> labels of the model, in IOB2
prepare         all of these                      -> a prepared folder, one example per window
dataset         a prepared split                  -> batches with a label per token
predictions     labels of words                   -> a file that conlleval reads, and its report
benchmark       what `finetuning/benchmarks.py` asks of a benchmark
"""
