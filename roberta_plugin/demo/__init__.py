"""A whole pretraining in a few minutes, from text to filled masks, with nothing downloaded: `roberta demo`.

    source_documents     source files of Python, numpy, torch -> docstrings, one document per file
    prose                docstrings                           -> paragraphs of plain English
    corpus               documents                            -> train.txt, valid.txt, test.txt
    (data/)              text -> byte-level BPE and dict.txt  -> .bin/.idx files
    training             .bin/.idx files                      -> checkpoints, by the real `fairseq-train`
    (training/log)       fairseq's log                        -> progress bar and loss curve
    evaluation           test split, last checkpoint          -> accuracy and perplexity beside the unigram baseline
    mask_filling         held-out sentences                   -> the model's answers
    report               all of it                            -> report.md, report.json, loss.png

`steps` puts them in order for `roberta_plugin/cli/demo.py`. `run_folder` records which steps are done, so that a rerun
resumes where the last one stopped.
"""
