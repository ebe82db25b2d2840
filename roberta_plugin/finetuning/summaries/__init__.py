"""Extractive summaries: which sentences of a document to keep (Liu and Lapata 2019, "BertSumExt").

options         what a user can change
stories         CNN/DailyMail as distributed           -> articles with highlights
reader          tables, or stories                     -> documents in sentences, with their summaries
oracle          sentences, summary                     -> the sentences to learn: greedy ROUGE
inputs          a document's sentences                 -> windows `<s> one </s> <s> two </s> ...`
prepare         the three above                        -> a prepared folder, one example per document
layout          which sentences a batch scores         -> where the model reads their <s>
documents       a prepared split                       -> texts, labels and numbers of its sentences
dataset         a prepared split                       -> batches for training
selection       scores of sentences                    -> the sentences of a summary; lead and oracle beside it
metrics         given and right summaries              -> ROUGE by rouge-score; F1 and precision of the choice
predictions     raw outputs                            -> summaries, their metrics and their file
benchmark       what `finetuning/benchmarks.py` asks of a benchmark
"""
