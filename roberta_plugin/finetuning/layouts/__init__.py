"""Long inputs -> sequences of tokens.

    texts       texts and pairs            -> model inputs; cuts or divides texts that are too long
    windows     question, long passage     -> overlapping windows `<s> question </s> </s> part </s>`
    words       text                       -> words and their places

The kinds use these files; no file here depends on a kind.
"""

LONG_TEXTS = ("head", "tail", "head+tail", "windows")  # the part of a long text that is read
POOLINGS = ("mean", "max")  # how the features of windows are combined
