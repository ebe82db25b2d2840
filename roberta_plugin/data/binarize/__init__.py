"""Text files -> .bin/.idx, dict.txt and a manifest, in parallel and resumable (`roberta binarize`).

pipeline     all steps, in order; refusals and warnings for suspicious results
plan         inputs and outputs, and whether the outputs exist already
folder       locks, leftovers of killed runs, one vocabulary per folder
parts        text -> tasks -> part files
part_files   the format of part files, and their way into .bin and .idx
workers      the processes that do the tasks
dictionary   training text -> dict.txt
"""
