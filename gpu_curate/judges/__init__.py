"""Learned scores: an integer column each, a pure function of (text, model). What a recipe says of them: `quality.judges`.

model    an exact judge and its file        labels     texts with what they are worth
train    makes one from labelled texts      evaluate   how well a judge tells them apart
"""
