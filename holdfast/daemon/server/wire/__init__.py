"""Client connections: bytes to requests and answers to bytes, within bounds; knows no call.

| Module            | Holds                                                                  |
|-------------------|------------------------------------------------------------------------|
| `requests`        | a request, what holds for its call, the memory it takes                |
| `frame_reader`    | bytes of one client cut into frames                                    |
| `answer_queue`    | requests in flight on one connection, and their answers in order       |
| `connection`      | one connection without I/O: bytes in, events out                       |
| `protocol`        | one connection on asyncio                                              |
| `connections`     | all connections of a server, and what they share                       |
| `security`        | what a connection needs of TLS and of a login                          |
| `admission`       | how many there may be, and from where                                  |
| `accounts`        | what those of one client have in common: its quota and its turns       |
| `turns`           | which one is worked for next                                           |
| `open_connection` | a connection as those that are shared see it                           |
| `request_batch`   | small requests of one turn, which take each part of their way together |
| `buffers`         | the bytes that all of them make a node keep                            |
"""
