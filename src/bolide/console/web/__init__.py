"""The web server of the console: what every request passes, the log-in page, and its sockets."""
