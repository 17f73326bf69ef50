"""Records on their way to the brokers.

`accumulator` keeps one queue for each partition and makes batches; `pace` says when what waits is sent to which broker; `sender` sends it,
one Produce for all partitions of a broker, on the connections of a `broker_slot`; `retries` sends again what was not acknowledged, until
its time is over.
"""
