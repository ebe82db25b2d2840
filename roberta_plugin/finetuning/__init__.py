"""From official files to official metrics: the map of fine-tuning (paper sections 5.1 to 5.3).

Once, by `roberta prepare TASK`:

    SUITE/reader       official files                       -> checked examples: texts, labels, ids
    raw_files          official files                       -> what identifies their content
    SUITE/prepare      examples, tokenizer                  -> a prepared folder
    model_inputs       texts                                -> `<s> a </s> </s> b </s>`, cut to length
    ----------------------------------------------------------------------------------------------
    prepared           the prepared folder: writer and memory-mapped reader
    ----------------------------------------------------------------------------------------------
In training, by `fairseq-train` with --task roberta_sentence_prediction, squad2 or race:

    examples_dataset   a split                              -> batches of examples of similar length

    identity           the prepared folder                  -> what a checkpoint remembers of its data

At any time, by `roberta inspect`:

    inspection         a prepared folder                    -> what is in it, and whether it is sound

And after training, by `roberta evaluate` and `roberta finetune`:

    preparation        a prepared folder, a command         -> whether it is the one that is asked for
    paper_settings     a task                               -> the paper's settings, which SUITE/suite turns into a grid
    runs               a grid, a model                      -> the file that `roberta sweep` runs
    inference          checkpoint, a split                  -> the model's raw outputs
    averaging          raw outputs of several models        -> mean probabilities
    SUITE/suite        raw outputs                          -> official metrics and prediction files
    evaluation         all of this for some checkpoints     -> evaluation_SPLIT.json: of each, median, averaged
    report             evaluations                          -> table and plot beside the paper's numbers

`suites` is the table of the tasks and says what a suite offers. SUITE is `glue`, `squad` or `race`; each has a map of
its own. Nothing here knows fairseq but examples_dataset and inference.
"""
