"""COPA, ReCoRD and CommonsenseQA: options compete, one sequence each, as in RACE (paper section 5.3).

tasks         the tasks: files, layouts, grids
rows          entries                           -> a text and its options
prepare       rows, and a tokenizer             -> a prepared folder, one sequence per option
predictions   answers                           -> their official file
benchmark     what `finetuning/benchmarks.py` asks of a benchmark

They are trained by `--task race`.
"""
