"""The calls that a node serves beside Kafka's own, as values and as bytes; pure.

| Module | What it holds |
|---|---|
| `results` | requests and results of the five share-state calls, as values |
| `share_state` | their API keys and versions, and what the bytes of requests and responses have in common |
| `state_requests`, `state_responses` | their bytes, in one go and in steps |
| `share_state_access` | the way to share state for another tenant of the node: calls of functions, no bytes |
| `share_group_heartbeat`, `share_fetch`, `share_acknowledge` | the calls of a stock share consumer, and which requests are refused |
| `share_consumer` | what the latter two have in common: acknowledgements and their rules, addresses of leaders |
| `share_errors` | the error codes that may leave with them |
| `admin` | the admin call |
"""
