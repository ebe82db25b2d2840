"""From official files, or own tables, to metrics: the formats and metrics of fine-tuning (paper sections 5.1 to 5.3).

Before training, by `roberta prepare TASK`:

    raw_files           raw files                     -> a digest of their content; checks of JSON values
    model_inputs        texts                         -> `<s> a </s> </s> b </s>`, cut to length
    prepared            the prepared folder: memory-mapped reader
    prepared_writer     the prepared folder: writer
    prepared_files      checks of its files: sizes, digests, shapes
    preparation         PrepareSettings               -> a prepared folder; refuses one with other settings

In training, by `fairseq-train` with --task roberta_sentence_prediction, squad2, race, roberta_tagging or
roberta_summarization:

    examples_dataset    a split                       -> batches of examples of similar length
    identity            a prepared folder             -> what a checkpoint remembers of its data

At any time, by `roberta inspect`:

    inspection          a prepared folder             -> what is in it, and whether it is sound

After training, used by `roberta_plugin/experiments/`:

    submission          prediction files              -> the zip of a leaderboard

For all of them:

    benchmarks          the table of all tasks, and what a benchmark offers
    options             the options of each task, as dataclasses with help texts
    option_fields       what they have in common
    paper_settings      the training settings of the paper's Table 10
    glue  squad  race  tagging  summaries
                        the benchmarks, with the same files each: reader, inputs, prepare, metrics, predictions
    superglue           SuperGLUE, WinoGrande and CommonsenseQA
    custom              own tables, by kinds of tasks

Only examples_dataset knows fairseq.
"""
