"""SQuAD 1.1 and 2.0: answers that are spans of a passage (paper section 5.2).

tasks           the rows: a prepared folder with one example per window, metrics, prediction files
reader          official JSON files               -> checked questions, passages, answers and where they are
"""
