"""Token shards for other programs' readers, and shards made of shards: `gpu-curate shards convert | merge | split | sample`.

source.py      a split with its documents, read in blocks
writers.py     what other programs read, file by file, and a check of what was written
folders.py     folders of shards made of documents of others
"""
