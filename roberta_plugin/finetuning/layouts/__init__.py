"""How long inputs become sequences of tokens.

    texts       texts and pairs            -> model inputs; what is read of a text that is too long
    windows     question, long passage     -> overlapping windows `<s> question </s> </s> part </s>`
    words       text                       -> words and their places

The kinds read these; nothing here knows a kind.
"""

LONG_TEXTS = ("head", "tail", "head+tail", "windows")  # what is read of a text that is too long
POOLINGS = ("mean", "max")  # of windows
