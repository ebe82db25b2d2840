"""Extractive summaries: which sentences of a document to keep (Liu and Lapata 2019, "BertSumExt").

tasks           the rows: a prepared folder with one example per document, ROUGE, prediction files
reader          tables, or stories                     -> documents in sentences, with their summaries
oracle          sentences, summary                     -> the sentences to learn: greedy ROUGE
"""
