"""GLUE (Wang et al. 2019, arXiv 1804.07461): from official TSV files to official metrics and submission.

    tasks           the tasks: files, columns, labels, metrics, the paper's numbers, prediction files
    reader          official files                    -> examples
    submission      prediction files                  -> the zip of all tasks

WNLI compares several sequences instead of judging one:

    alignment       WNLI's text and hypothesis        -> the pronoun, and the phrase for it
    wnli            WNLI's rows                       -> texts with competing phrases in place of the pronoun
"""
