"""GLUE: nine tasks from official TSV files to official metrics and the leaderboard's zip (paper section 5.1).

tables             the table of the tasks: files, columns, labels, metrics, how a model is asked
reader             a TSV file                           -> checked rows
ranking            QNLI's pairs                         -> questions whose sentences compete; scores -> answers
alignment          WNLI's text and hypothesis           -> the pronoun, and the phrase for it
noun_phrases       a text                               -> its noun phrases
wnli               WNLI's rows                          -> texts with competing phrases in the pronoun's place
prepare            all of that, and a tokenizer         -> a prepared folder
phrase_scores      model, batch with phrases masked     -> how well each phrase fits (torch)
metrics            counts, or predictions and answers   -> accuracy, F1, Matthews, Pearson, Spearman
submission         predictions                          -> TSV files, and the zip of all tasks
benchmark              what `finetuning/benchmarks.py` asks of a benchmark
"""
