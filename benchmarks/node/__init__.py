"""What a node pays for being watched and closed: scrapes and health calls, access rules, TLS and logins."""
