"""COPA, ReCoRD and CommonsenseQA: options compete, one sequence each, as in RACE (paper section 5.3).

    tasks         the tasks: files, layouts, grids, metrics, prediction files
    rows          rows of the files                 -> a text and its options

They are trained by `--task race`.
"""
