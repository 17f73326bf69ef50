"""What a service manager such as systemd is notified of: readiness, progress, reloads, the end, and that the work goes on."""
