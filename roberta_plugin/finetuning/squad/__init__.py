"""SQuAD 1.1 and 2.0: answers that are spans of a passage (paper section 5.2).

tasks           official JSON files -> checked questions with their passages and answers; the rows
"""
