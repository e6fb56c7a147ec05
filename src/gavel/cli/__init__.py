"""The command line: thin verbs over the library. Tables for people, `--json` for programs, errors in one sentence."""
