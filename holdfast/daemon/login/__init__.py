"""Who a client is: TLS, certificates and their names, users in a file, and SASL without I/O.

| Module            | Holds                                                                     |
|-------------------|---------------------------------------------------------------------------|
| `credentials`     | what is kept of a password, and the users who have one                    |
| `users_file`      | these as lines of a file                                                  |
| `mechanisms`      | PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, from the side of the server       |
| `password_checks` | which password is checked next, and how many may wait                     |
| `sasl_login`      | the login of one client connection: calls in, outcomes out                |
| `certificates`    | whom a certificate names, and until when it is valid                      |
| `principal_rules` | from the name in a certificate to a principal                             |
| `tls`             | certificate, key and authority from their files                           |
"""
