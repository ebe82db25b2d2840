"""One pretraining, from the user's text or data-bin to a model: `roberta pretrain`, `roberta recipes`, `roberta demo`.

recipe        a file of launch/recipes/   -> what to train, for what text and machine, with what result
choice        machine, text, hours        -> a recipe, scaled to them, and fairseq-train's command
start         --finetune-from-model       -> its architecture, tokenizer and vocabulary, in the recipe's place
ranks         a command on many ranks     -> a job of SLURM, or torchrun's ranks
pace          updates and their time     -> a line if the machine is slower than planned
evaluation    a model and held-out text   -> scores beside baselines, filled masks; report.md, loss.png
docstrings    this Python's docstrings    -> the text of `roberta demo`
settings      the options of `roberta pretrain`
text_look     text, held-out text         -> what is wrong with it, before anything is trained on it
texts         text                        -> tokenizer, data-bin, made once
request       the user's options          -> checked, with the model to start from
target        a recipe                    -> where it runs: here, ranks of SLURM or torchrun, or elsewhere
plan          a request                   -> recipe, command of fairseq-train, what to expect
record        pretrain.json               -> what the training began with; changes are refused
run           a plan                      -> fairseq-train in a process of its own, with a bar
"""
