"""Records on their way to the brokers.

`accumulator` keeps one queue for each partition and makes batches; `pace` says when each broker gets the next ones; `sender` sends them,
one Produce for all partitions of a broker, on the connections of a `broker_slot`; `retries` sends batches again that were not
acknowledged, until their time is over.
"""
