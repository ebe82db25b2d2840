"""From official files to official metrics: the map of fine-tuning (paper sections 5.1 to 5.3).

Once, by `roberta prepare TASK`:

    SUITE/reader       official files                       -> checked examples: texts, labels, ids
    SUITE/prepare      examples, tokenizer                  -> a prepared folder
    model_inputs       texts                                -> `<s> a </s> </s> b </s>`, cut to length
    ----------------------------------------------------------------------------------------------
    prepared           the prepared folder: writer and memory-mapped reader
    ----------------------------------------------------------------------------------------------
In training, by `fairseq-train` with --task roberta_sentence_prediction, squad2 or race:

    examples_dataset   a split                              -> batches of examples of similar length

And after it, by `roberta evaluate` and `roberta finetune`:

    inference          checkpoint, a split                  -> the model's raw outputs
    SUITE/suite        raw outputs of one or several models -> official metrics and prediction files

`suites` is the table of the tasks and says what a suite offers. SUITE is `glue`, `squad` or `race`; each has a map of
its own. Nothing here knows fairseq but examples_dataset and inference.
"""
