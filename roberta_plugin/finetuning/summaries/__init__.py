"""Extractive summaries: which sentences of a document to keep (Liu and Lapata 2019, "BertSumExt").

tasks           the rows: a prepared folder with one example per document, ROUGE, prediction files
options         what a user can change
stories         CNN/DailyMail as distributed           -> articles with highlights
reader          tables, or stories                     -> documents in sentences, with their summaries
oracle          sentences, summary                     -> the sentences to learn: greedy ROUGE
dataset         a prepared split                       -> batches for training
"""
