"""The log's records through librdkafka, in place of `sending` and `fetcher`: chosen by the setting `log.client`.

`sender` hands records to producers, `fetcher` reads them with consumers; `properties` says how both are made.
`KafkaLog` itself queries the start, the end and the leader of a log in either case: a broker that was frozen names an end of the past, and
librdkafka does not let its user have another broker confirm the leader.
"""
