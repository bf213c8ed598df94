"""The sections of a report, a file each; every file registers its own."""
