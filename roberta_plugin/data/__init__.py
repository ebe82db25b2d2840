"""From raw text to batches: the map of this package, by file name.

Once, by `roberta tokenizer train` and `roberta binarize`:

    text_inputs          files, URLs, pipes; text, JSONL, tables -> lines of text
    corpora              a folder of corpora (--corpora)         -> text files by corpus and split; smoothed shares
    sentences            lines                                   -> sentences, one a line (--split-sentences)
    tokenizers/          lines                                   -> tokenizer ids (three kinds, one interface)
    vocabulary           tokenizer ids, dict.txt                 -> model ids; knows <s> <pad> </s> <unk> <mask>
    binarize/            the three above, in parallel            -> mmap_tokens files and manifest
    ---------------------------------------------------------------------------------------------------------
    mmap_tokens          the .bin/.idx format of fairseq: writer and memory-mapped reader
    manifest             sources of a data-bin, with hashes
    ---------------------------------------------------------------------------------------------------------
In every epoch, by `fairseq-train`:

    blocks               lines of the .bin                       -> blocks of at most T tokens (--sample-break-mode)
    block_tables         the blocks of a large .bin              -> a file, made once and memory-mapped
    mixture              several corpora and their weights       -> number of blocks of each in an epoch
    counter_random       (seed, pass, block, position)           -> random bits and permutations, the same everywhere
    block_order          (seed, epoch, position)                 -> the block at this position of the epoch
    block_batches        positions of the epoch                  -> block addresses of batches, for any number of ranks
    dynamic_masking      ids (B, T)                              -> masked input (B, T) and targets (B, T)
    batches              blocks                                  -> padded arrays (B, T), or one row (--pack-sequences)
    block_dataset        addresses (pass, block)                 -> whole batches, as fairseq's trainer requests them
    masked_lm_dataset    all of this as one fairseq dataset

Fine-tuning has its own flow from official files to batches, in `roberta_plugin/finetuning/`, built on this one.

A file that is part of a stage starts with the stage's name:

    text_inputs_remote       URLs                  -> files, by fsspec
    text_inputs_compressed   .gz .zst .xz .bz2     -> their content, whole or refused
    text_inputs_files        names, URLs and pipes -> format of each input
    text_inputs_lines        an input              -> its content in whole lines
    text_inputs_ahead        pieces                -> the same, read in a thread
    text_inputs_json         the form of JSON, by how it begins
    text_inputs_quoting      the rows of TSV       -> whether quotation marks enclose its cells
    text_inputs_columnar     Parquet, Arrow        -> batches of rows
    text_inputs_tables       any of these, CSV     -> rows; the cells of the column of the text

`text_check` looks at text before any of it: duplicates, leaks, markup, encodings. `normal_form` warns of texts in
another Unicode form than the tokenizer's.
Used by several stages: `array_files` (arrays larger than memory), `rounding` and `white_space`. `corpus_statistics`
computes what `roberta inspect` shows and checks; `pair_counts` counts pairs of tokens, `count_baselines` and
`neighbor_baseline` compute the losses of counts, which are shown beside those of models.
A stage imports earlier stages only; only the *_dataset files import fairseq.
"""
