"""The page: the state of share groups to be looked at in a browser or as JSON, on a stock Kafka or on a node, read-only.

From the bytes up:

- `follower` reads a state topic and follows it; it joins no group and commits nothing.
- `book` has the states as they are now; it is pure.
- `timeline` tells what became of an offset, from the log as far as it reaches.
- `web` shows it: `web.app.make_app(source)` returns the application that answers requests, which `holdfast page` listens for.
- `source` is what the web side asks, and the values that it is given; it knows neither Kafka nor the web.
"""
