"""From official files to official metrics: the map of fine-tuning (paper sections 5.1 to 5.3).

Once, by `roberta prepare TASK`:

    BENCHMARK/reader       official files                       -> checked examples: texts, labels, ids
    raw_files          official files                       -> what identifies their content
    BENCHMARK/prepare      examples, tokenizer                  -> a prepared folder
    model_inputs       texts                                -> `<s> a </s> </s> b </s>`, cut to length
    ----------------------------------------------------------------------------------------------
    prepared           the prepared folder: writer and memory-mapped reader
    ----------------------------------------------------------------------------------------------
In training, by `fairseq-train` with --task roberta_sentence_prediction, squad2 or race:

    examples_dataset   a split                              -> batches of examples of similar length

    identity           the prepared folder                  -> what a checkpoint remembers of its data

At any time, by `roberta inspect`:

    inspection         a prepared folder                    -> what is in it, and whether it is sound

And after training, in `roberta_plugin/experiments/`:

    averaging          raw outputs of several models        -> mean probabilities
    BENCHMARK/benchmark  raw outputs                        -> official metrics and prediction files

`benchmarks` is the table of all tasks, and says what a benchmark offers. `paper_settings` has the paper's settings.
`preparation` compares a prepared folder with what a command asks for; `prepared_files` has the sums and sizes of its
files, `raw_files` those of official files. BENCHMARK is `glue`, `squad` or `race`; each has a map of its own. Only
examples_dataset knows fairseq.
"""
