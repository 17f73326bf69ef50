"""The calls that a node serves beside Kafka's own, as values and as bytes; pure.

| Module | What it holds |
|---|---|
| `results` | requests and results of the five share-state calls, as values |
| `share_state` | their API keys and versions, and what the bytes of requests and responses have in common |
| `state_requests`, `state_responses` | their bytes, in one go and in steps |
| `share_state_access` | the way to share state for another tenant of the node: calls of functions, no bytes |
| `admin` | the admin call |
"""
