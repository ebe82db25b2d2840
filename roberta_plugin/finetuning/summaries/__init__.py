"""Extractive summaries: which sentences of a document to keep (Liu and Lapata 2019, "BertSumExt").

tasks           tables, or stories -> documents in sentences, with their summaries; the rows
"""
