"""From official files, or your own tables, to metrics: the benchmarks of fine-tuning (paper sections 5.1 to 5.3).

    benchmarks/         official row -> record, the paper's numbers and grid, prediction files
    kinds/              record -> example -> inputs -> loss -> judge -> answers: a file for each kind
    layouts/            texts, windows, words, sentences: how long inputs become sequences

Before training, by `roberta prepare TASK`:

    prepared            the prepared folder: memory-mapped reader, checks of its files, writer
    preparation         PrepareSettings               -> a prepared folder; refuses one with other settings; its
                        contents and checks of its files, which `roberta inspect` shows

In training, by `fairseq-train` with a --task that an extension registers, such as roberta_sentence_prediction:

    examples_dataset    a split                       -> batches of examples of similar length
    training            a kind                        -> its head, batches and loss
    identity            a prepared folder             -> a checkpoint's record of its data
    starting_head       a checkpoint's head, labels   -> the head that a training begins with

For preparation and training:

    records             fields of a row or a record   -> texts, values, numbers, by the same rules
    label_names         numbers of labels             -> their names, which a file or an option has, or no label
    examples            rows                          -> examples; labels in order, their weights
    options             the options of each task, as dataclasses with help texts

Only examples_dataset knows fairseq. The order of imports, from below: prepared, records, examples; layouts; kinds;
benchmarks and options; and all others.
"""
