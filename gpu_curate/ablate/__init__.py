"""What cleaning buys: small models trained on equal tokens of several shard sets, each judged on every validation set.

    model.py     a small GPT
    trial.py     one training and its judgement
    table.py     all of them; bits per byte with intervals

Only model.py and trial.py need torch (extra `ablate`).
"""
