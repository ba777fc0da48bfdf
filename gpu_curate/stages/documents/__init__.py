"""Documents: read the sources, normalise, give every document its id, cut partitions by bytes."""
