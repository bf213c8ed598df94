"""The sections of a report, a file each; every one registers itself."""
