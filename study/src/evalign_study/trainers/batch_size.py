"""The batch size of a network, by the number of its training rows."""


def usual_batch_size(rows: int) -> int:
    """The default batch size: a 32nd of the training rows, between 32 and 1024.

    Examples:
        >>> [usual_batch_size(rows) for rows in (100, 6400, 10**6)]
        [32, 200, 1024]
    """
    return min(max(32, rows // 32), 1024)
