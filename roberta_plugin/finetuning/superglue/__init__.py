"""SuperGLUE's tasks, WinoGrande and CommonsenseQA: from official JSON Lines to official metrics and prediction files.

    tasks         the tasks: files, labels, metrics, grids with their sources
    texts         BoolQ, CB, RTE, WiC, MultiRC      -> texts to classify
    winograd      WSC, WinoGrande                   -> texts with competing phrases in a gap
    prepare       the above, and a tokenizer        -> a prepared folder
    training      a task's settings                 -> the grid of its runs
    metrics       labels, or counts of them         -> macro F1, exact match
    predictions   labels                            -> their official file
    submission    prediction files                  -> the zip of all tasks
    benchmark     what `finetuning/benchmarks.py` asks of a benchmark
    choices       the same for COPA, ReCoRD and CommonsenseQA, whose options compete

Phrases compete as in WNLI: `glue/noun_phrases.py`, `glue/inputs.py` and `glue/phrase_scores.py` are shared. These tasks
are trained by `--task roberta_sentence_prediction`, those of `choices` by `--task race`.
"""
