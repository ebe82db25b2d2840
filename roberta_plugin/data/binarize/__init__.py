"""Text files -> .bin/.idx, dict.txt and a manifest, in parallel and resumable (`roberta binarize`).

pipeline     all of it, in order
plan         what is to be made, and whether it is there already
folder       locks, leftovers of killed runs, one vocabulary per folder
parts        text -> tasks -> part files
part_files   the format of part files
workers      the processes that do the tasks
sharing      several processes for one compressed file or pipe
merge        part files -> .bin and .idx
dictionary   dict.txt of the training text
checks       whether the result can be what was wanted
"""
