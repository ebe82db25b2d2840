"""COPA, ReCoRD and CommonsenseQA: options compete, one sequence each, as in RACE (paper section 5.3).

tasks         rows of the official files -> a text and its options; files, layouts, grids, prediction files
"""
