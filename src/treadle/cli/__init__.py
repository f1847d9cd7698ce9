"""The `treadle` command: parsing, and one file per subcommand."""
