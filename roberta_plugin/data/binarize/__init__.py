"""Text files -> .bin/.idx, dict.txt and a manifest, in parallel and resumable (`roberta binarize`).

pipeline     all steps, in order; refusals and warnings for suspicious results; training text -> dict.txt
plan         inputs and outputs, whether the outputs exist already; locks, leftovers, one vocabulary per folder
parts        text -> tasks -> part files, their format and their way into .bin and .idx
workers      the processes that do the tasks
"""
