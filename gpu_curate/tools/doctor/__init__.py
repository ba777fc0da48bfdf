"""Is this machine fit? What is installed, what is missing, what is broken, and what to do about each.

Everything that imports a foreign library or talks to a driver runs in a process of its own with a time limit, so a hang, a
crash in native code or a broken import is one line of the result and never the end of it.

    python -m gpu_curate.tools.doctor PROBE     what such a process runs; fingerprint_of its checks as JSON after MARK
"""
