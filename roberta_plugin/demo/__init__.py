"""A whole pretraining in a few minutes, from text to filled masks, with nothing downloaded: `roberta demo`.

pretraining   docstrings of the standard library      -> train.txt, valid.txt, test.txt
(verbs)       text -> `roberta tokenizer train`, `roberta binarize` -> .bin/.idx files
pretraining   .bin/.idx files                         -> checkpoints, by the real `fairseq-train`
evaluation    test split, last checkpoint             -> scores beside a unigram baseline, filled masks
"""
