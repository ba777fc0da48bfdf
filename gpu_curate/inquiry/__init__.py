"""Questions to a finished run, answered from what lies in it: why a document went, and what other rules would have done.

    stored      a run's boxes, as the questions read them        toggles   rules taken away or moved, as a recipe's keys
    masks       the failing rules of every document under them   funnel    what each rule takes; a sweep of one threshold

Nothing here writes into a run directory but `forget`.
"""
