"""GLUE: nine tasks from official TSV files to official metrics and the leaderboard's zip (paper section 5.1).

    tasks           the tasks: files, columns, labels, metrics, and the kind of each
    reader          a TSV file                        -> checked rows
    prepare         the above, and a tokenizer        -> a prepared folder
    predictions     raw outputs                       -> predictions, and their TSV file
    submission      prediction files                  -> the zip of all tasks
    benchmark       what `finetuning/benchmarks.py` asks of a benchmark

Two tasks compare several sequences instead of judging one:

    ranking         QNLI's pairs                      -> questions whose sentences compete; logits -> answers
    alignment       WNLI's text and hypothesis        -> the pronoun, and the phrase for it
    wnli            WNLI's rows                       -> texts with competing phrases in place of the pronoun
"""
