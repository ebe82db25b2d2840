"""SuperGLUE's tasks, WinoGrande and CommonsenseQA: from official JSON Lines to official metrics and prediction files.

    tasks         the tasks: files, texts, labels, metrics, grids with their sources, prediction files
    winograd      WSC, WinoGrande                   -> texts with competing phrases in a gap
    choices       COPA, ReCoRD and CommonsenseQA, whose options compete

Phrases compete as in WNLI (`kinds/phrase_ranking.py`). These tasks are trained by `--task
roberta_sentence_prediction`, those of `choices` by `--task race`.
"""
