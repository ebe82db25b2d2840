"""Text files -> .bin/.idx, dict.txt and a manifest, in parallel and resumable (`roberta binarize`).

pipeline     all steps, in order
plan         inputs and outputs, and whether the outputs exist already
folder       locks, leftovers of killed runs, one vocabulary per folder
parts        text -> tasks -> part files
part_files   the format of part files
workers      the processes that do the tasks
sharing      several processes for one compressed file or pipe
merge        part files -> .bin and .idx
dictionary   training text -> dict.txt
checks       refusals and warnings for suspicious results
"""
