"""Records on their way to the brokers.

`accumulator` keeps one queue for each partition and makes batches; `sender` sends them, one Produce for all partitions of a broker, on the
connections and at the pace of a `broker_slot`; `retries` sends again what was not acknowledged, until its time is over.
"""
