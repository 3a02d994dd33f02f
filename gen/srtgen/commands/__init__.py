"""One module a command; each has a click command named `command`. The command line imports only the one it runs."""
