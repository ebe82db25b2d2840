"""From official files, or your own tables, to metrics: the benchmarks of fine-tuning (paper sections 5.1 to 5.3).

A benchmark is a row: official files -> examples of a kind, the paper's settings and numbers, prediction files. The kind
(`roberta_plugin/kinds`) writes the examples and judges outputs. A new one is a row in a module, and a line of
`benchmarks`.

Before training, by `roberta prepare TASK`:

    raw_files           raw files                     -> which they are, their rows, a digest of their content
    model_inputs        texts                         -> `<s> a </s> </s> b </s>`, cut to length
    prepared            the prepared folder: memory-mapped reader, checks of its files
    prepared_writer     the prepared folder: writer
    preparation         PrepareSettings               -> a prepared folder; refuses one with other settings

In training, by `fairseq-train` with --task roberta_sentence_prediction, squad2, race, roberta_tagging,
roberta_summarization or roberta_embedding:

    examples_dataset    a split                       -> batches of examples of similar length
    identity            a prepared folder             -> what a checkpoint remembers of its data

At any time, by `roberta inspect`:

    inspection          a prepared folder             -> what is in it, and whether it is sound

After training, used by `roberta_plugin/experiments/`:

    submission          prediction files              -> the zip of a leaderboard

For all of them:

    benchmark           what a row is, and what all rows share: prepare, recipe, score
    benchmarks          the names of all tasks, their options and kinds
    options             the options of each task, as dataclasses with help texts
    race                RACE, and other sets of multiple choice
    squad               SQuAD 1.1 and 2.0
    tagging             CoNLL-2003, WNUT-17, and other tagged words
    summaries           CNN/DailyMail, and other documents with summaries
    xnli                trained in one language, tested in fifteen
    glue                GLUE
    superglue           SuperGLUE, WinoGrande and CommonsenseQA
    custom              your own tables

Only examples_dataset knows fairseq.
"""
