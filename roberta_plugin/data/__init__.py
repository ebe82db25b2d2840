"""From raw text to batches: the map of this package. File names are the words of the map.

Once, by `roberta vocabulary train` and `roberta binarize`:

    text_inputs          files and pipes (also compressed, JSONL) -> lines of text
    tokenizers/          lines                                   -> tokenizer ids (three kinds, one signature)
    vocabulary           tokenizer ids, dict.txt                 -> model ids; knows <s> <pad> </s> <unk> <mask>
    binarize             the three above, in parallel            -> mmap_tokens files and a manifest
    ---------------------------------------------------------------------------------------------------------
    mmap_tokens          the .bin/.idx format of fairseq: writer and memory-mapped reader; nothing else knows it
    ---------------------------------------------------------------------------------------------------------
In every epoch, by `fairseq-train`:

    blocks               lines of the .bin                       -> ranges of at most T tokens (--sample-break-mode)
    block_tables         the same of a large .bin                -> a file, made once and memory-mapped
    mixture              several corpora and their weights       -> how many blocks of each an epoch takes
    counter_random       (seed, pass, block, position)           -> random bits, the same wherever they are drawn
    random_permutation   (key, position)                         -> an element of a random permutation of any size
    block_order          (seed, epoch, position)                 -> the block at this position of the epoch
    block_batches        positions of the epoch                  -> addresses of batches, one at a time
    batches              ranges                                  -> padded arrays of ids (B, T)
    dynamic_masking      ids (B, T)                              -> masked input (B, T) and targets (B, T)
    packing              a padded batch                          -> one row without padding (--pack-sequences)
    block_dataset        addresses (pass, block)                 -> whole batches, as fairseq's trainer asks for them
    masked_lm_dataset    all of this as one fairseq dataset

Fine-tuning has its own flow from official files to batches, in `roberta_plugin/finetuning/`, on top of this one.

Parts of a stage have its name and a word more:

    text_inputs_files     names and pipes -> what each is        text_inputs_compressed   archives -> their content
    text_inputs_sample    a sample to train a vocabulary on      mmap_tokens_parts        one .bin, several writers
    binarize_plan         what to make; is it made already?      binarize_folder          locks; one vocabulary a folder
    binarize_parts        text -> tasks -> part files            binarize_part_files      what is in those files
    binarize_workers      the processes that do tasks            binarize_sharing         many processes for one archive
    binarize_merge        part files -> .bin and .idx            binarize_checks          can it be what was wanted?
    binarize_dictionary   dict.txt of the training text

Beside the flow: `array_files` (arrays larger than the memory), `atomic_files` (write under a temporary name, fsync,
rename), `progress` (bars and log lines) and
`corpus_statistics` (what `roberta inspect` shows and checks). A stage imports earlier stages only; fairseq appears in
*_dataset files alone.
"""
