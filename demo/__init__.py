"""The demonstration behind `make demo`: a queue over a Kafka topic whose delivery state survives two sudden deaths.

    orders           the work: a topic of records, and how often each of them fails
    share_partition  the delivery state of one topic partition, as its leader keeps it in memory
    worker           leads some share partitions: acquire, process, acknowledge or release, write the state down
    daemon           a Holdfast process: started, killed, started again
    cluster          the nodes, one or several, and who of them serves which log partition
    takeover         what follows the power cut where there are several nodes
    busy             many more share partitions, so that there is a log worth folding
    history          the second act: compaction, short loads, a short log, and the history of what is gone from it
    verdict          what is true in the end: what was written, read back, and found in the log

`__main__` plays it from start to end.
"""
