"""The golden set: what the program computes today, so that a change which moves code can show that no number has moved.

    python -m tests.golden record [--output FILE]        # all subjects: five minutes of two idle cores
    python -m tests.golden record --only finetuning/RTE  # these anew, after a change that CHANGELOG explains
    python -m tests.golden compare [FILE] [--only PART] [--exact]
    python -m tests.golden breaks [--only NAME]          # an hour: which test notices each of 91 deliberate faults

`compare` says of each entry: equal, within 1e-6, different, missing or new; it ends with 1 if one is of the last three,
and with --exact also for the second. `reference.json` names machine, versions and commit. Another processor rounds
otherwise: there, record the commit before the change into a file of your own first, and compare with that.

    __main__      options; the subjects, each in a fork of one process that has imported everything, two at a time
    entries       arrays, texts, models and folders as hashes with a few numbers; how two recordings compare
    steps         the commands as a user types them, and the few names of the inside that a recording needs
    interface     --help of every verb, options registered with fairseq, names and signatures that are public
    files         tokenizers, .bin, .idx and dict.txt, by one worker and by two
    pretraining   the losses of 50 updates: input formats x fp32, bf16, shared layers, two ranks; and other options
    finetuning    every benchmark and every kind of own table: prepared data, grid, two updates, outputs, answers, export
    conversion    every kind of head to other formats and back; a hub's answers; predictions of every kind
    breaks        deliberate faults, and the tests that are to notice; the outcome is breaks.md
    break_list    what they are

Speed is not recorded here. Before and after a change that may cost speed, run on an idle machine, for the rows of
README's table: `python -m tests.benchmarks.bench_step` (training step), `bench_loader` (loader), `bench_open` (starting),
`bench_binarize` (binarize), `bench_finetune` and `bench_embeddings` (fine-tuning), `bench_inference` (answers), each
without --write, and compare with tests/benchmarks/results/.
"""
