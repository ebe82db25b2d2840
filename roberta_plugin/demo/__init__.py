"""A whole pretraining in a few minutes, from text to filled masks, with nothing downloaded: `roberta demo`.

corpus        source files of Python, numpy, torch    -> docstrings -> prose -> train.txt, valid.txt, test.txt
(data/)       text -> byte-level BPE and dict.txt     -> .bin/.idx files
training      .bin/.idx files                         -> checkpoints, by the real `fairseq-train`
evaluation    test split, last checkpoint             -> scores beside a unigram baseline, filled masks
report        all of it                               -> report.md, report.json, loss.png
steps         these in order for `roberta_plugin/cli/demo.py`, and the run folder, which records finished steps, so
              that a rerun resumes where the last one stopped
"""
