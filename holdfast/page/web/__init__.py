"""The page over HTTP: HTML that a browser shows without any script, the same answers as JSON, and events for live numbers.

- `app` has the paths; `guard` decides which requests they see, and sets the headers of every answer.
- `render` makes HTML of views by the templates in `templates/`; `formats` has their numbers, times and links.
- `strip` is the picture of a share partition, `content` a key or value as text; both are pure.
- `shared` keeps answers for all readers of one address; `server` has the connections of `holdfast page`.
- `events` tells browsers that something has changed; `openapi` describes the queries, and `schemas` their answers by the types of views.
"""
