"""Extractive summaries: which sentences of a document to keep (Liu and Lapata 2019, "BertSumExt").

options         what a user can change
stories         CNN/DailyMail as distributed           -> articles with highlights
reader          tables, or stories                     -> documents in sentences, with their summaries
oracle          sentences, summary                     -> the sentences to learn: greedy ROUGE
prepare         the three above                        -> a prepared folder, one example per document
dataset         a prepared split                       -> batches for training
predictions     raw outputs                            -> summaries, their metrics and their file
benchmark       what `finetuning/benchmarks.py` asks of a benchmark
"""
