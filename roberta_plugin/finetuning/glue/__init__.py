"""GLUE (Wang et al. 2019, arXiv 1804.07461): from official TSV files to official metrics and submission.

tasks    the tasks: files, columns, labels, metrics, the paper's numbers, prediction files; files -> examples
wnli     WNLI's text and hypothesis -> the pronoun; texts with competing phrases in its place
"""
