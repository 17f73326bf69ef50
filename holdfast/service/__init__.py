"""Notices for a service manager such as systemd: readiness, progress, reloads, the end, and signs that the work goes on."""
