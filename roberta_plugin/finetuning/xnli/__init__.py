"""XNLI (Conneau et al. 2018, arXiv 1809.05053): trained in one language, tested in fifteen.

tasks    the row: files by language, columns, labels, the numbers of XLM-R
"""
